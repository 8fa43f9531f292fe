"""`coget plan --network`: the paths of files through a network, as text and as a picture."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coalloc.cli import interrupts
from coalloc.errors import UsageError
from coalloc.util.streams import say, say_json

if TYPE_CHECKING:
    from coalloc.collect.methods import Method
    from coalloc.collect.simulation import SimulationRecord
    from coalloc.planner.documents.scenario import Scenario
    from coalloc.planner.results import TransferPlan

__all__ = ["load", "plan_network", "yaml_text"]


def load(path: Path) -> "Scenario":
    """Read a network from a file. :raises UsageError: when the file is unreadable or does not describe a network"""
    from coalloc.planner.documents.yaml_scenario import read

    return read(yaml_text(path), str(path))


def yaml_text(path: Path) -> str:
    """Return the text of a YAML file. :raises UsageError: when it is unreadable"""
    try:
        return path.read_text()
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "give a YAML file") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path} is not a text file", "give a YAML file") from None


def plan_network(path: Path, method: str | None, picture: Path | None, broker: str | None, as_json: bool) -> None:
    """Plan the transfers that a network file lists, print the plan, and draw it.

    :param method: name of a method with which to simulate the transfers too, hop by hop
    """
    from coalloc.planner import plan
    from coalloc.planner.documents.plan import answer
    from coalloc.probing.survey import filled

    scenario = load(path)
    if not scenario.demand.files:
        raise UsageError(f"{path} names no files", "list the files to move: files: {x: {size: 8 GB, at: a, to: b}}")
    scenario = interrupts.run(filled(scenario, broker))
    made = plan(scenario.network, scenario.demand)
    done = _carried_out(scenario, method) if method else None
    if picture:
        from coalloc.display.pictures import bars, draw, hops

        draw(picture, scenario.network, made, hops(done.record) if done else bars(made))
    if as_json:
        found = answer(scenario.network, made)
        say_json({**found, "carried_out": done.document} if done else found)
    else:
        _print(path, scenario, made)
        if done:
            done.show()


class _Done(NamedTuple):
    """The result of a simulated method."""

    method: "Method"
    record: "SimulationRecord"

    @property
    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        hops = [
            {**hop.send._asdict(), "piece": hop.send.piece._asdict(), "began": hop.began, "ended": hop.ended}
            for hop in self.record.hops
        ]
        summary = {"method": self.method.name, "outcome": self.record.outcome, "rationale": self.method.rationale}
        return {**summary, "seconds": self.record.seconds, "hops": hops}

    def show(self) -> None:
        """Print the result as text."""
        from coalloc.util import human

        done = self.record.outcome == "done"
        time = human.duration(self.record.seconds)
        outcome = f"takes {time} in {human.counted(len(self.record.hops), 'hop')}" if done else self.record.outcome
        say(f"{self.method.name} {outcome}: {self.method.rationale}")


def _carried_out(scenario: "Scenario", name: str) -> _Done:
    from coalloc.collect.methods import make
    from coalloc.collect.simulation import Underlay, simulate

    method = make(name, scenario.network, scenario.demand)
    return _Done(method, simulate(method, Underlay.of(scenario.network)))


def _print(path: Path, scenario: "Scenario", plan: "TransferPlan") -> None:
    from coalloc.display.table import ReportPrinter, table
    from coalloc.util import human

    out = ReportPrinter(sys.stdout)
    files, seconds = scenario.demand.files, float(plan.makespan)
    direct = (
        "" if plan.direct in (None, plan.makespan) else f"; without relays {human.duration(float(plan.direct or 0))}"
    )
    what = f"{human.counted(len(files), 'file')}, {human.size(scenario.demand.size)}"
    out.print(f"{human.one_line(str(path))}: {what}, about {human.duration(seconds)} ({plan.method}){direct}")
    out.print(human.one_line(f"{plan.reason[:1].upper()}{plan.reason[1:]}."))
    rows = [
        (
            human.one_line(" -> ".join(each.hosts)),
            human.one_line(each.file),
            human.size(each.bytes),
            human.rate(each.bytes / seconds) if seconds else "",
        )
        for each in plan.paths
    ]
    out.print(table(("path", "file", ">bytes", ">rate"), rows))
