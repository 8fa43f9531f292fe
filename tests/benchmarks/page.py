"""The results page, generated from the file that a benchmark run stores.

    python -m tests.benchmarks.page FILE

writes docs/reference/results.md and the pictures beside it. docs/explanation/benchmarks.md explains the numbers.
"""

import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from statistics import median
from textwrap import fill

from tests.benchmarks.results import COLUMNS, SHOWN, Result, beside, checked, goal_is_missed, read, rows, typical
from tests.benchmarks.rivals import RIVALS
from tests.benchmarks.scenarios import named

__all__ = ["page", "write"]

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PICTURES = "results"
WIDTH = 100
"""Longest line of text, in characters."""
TUNED = [name for name in RIVALS if not name.startswith(SHOWN)]

HEAD = """\
# Results

coget compared with other programs, on networks that differ, change and fail. `make results` makes
this page; [Benchmarks](../explanation/benchmarks.md) explains the measurement. Times are medians,
with minimum and maximum in brackets. A scenario that is missing here was not run with this version.
Each picture shows one run of coget: above, the rate on the link of each source; below, the ranges
that each source delivered. A line marks the ideal end, and dots mark changes of the network.

"""


def page(results: Sequence[Result]) -> str:
    """Return the page as Markdown."""
    summary = ["scenario", "network", "coget", "goal", "best other program"]
    lines = [_row(summary), _rule(summary), *(_row(_summary(result)) for result in results)]
    return HEAD + _measured(results) + "\n".join(lines) + "\n" + "".join(_section(result) for result in results)


def write(results: Sequence[Result], folder: Path) -> None:
    """Write the page and its pictures into a directory."""
    from tests.benchmarks.plots import draw

    pictures = folder / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for result in results:
        if run := typical(result.runs.get(SHOWN, ())):
            draw(result, run, pictures / f"{_stem(result)}.svg")
    (folder / "results.md").write_text(page(results))


def _measured(results: Sequence[Result]) -> str:
    """Return a paragraph with the versions of the code, and the speed of the machine."""
    versions = sorted({result.version or "changed code" for result in results})
    names = dict.fromkeys(name for result in results for name in result.machine)
    speeds = {name: [each.machine[name] for each in results if name in each.machine] for name in names}
    parts = [f"{name} {median(found):g} ({min(found):g}-{max(found):g})" for name, found in speeds.items()]
    machine = f", on a machine with: {'; '.join(parts)}" if parts else ""
    return fill(f"Measured with version {', '.join(versions)}{machine}.", WIDTH, break_on_hyphens=False) + "\n\n"


def _summary(result: Result) -> Iterator[str]:
    scenario = named(result.scenario)
    peers = [(result.ratio(name), name) for name in TUNED if name in result.runs]
    best = "{:.3f} ({})".format(*min(peers)) if peers else ""
    yield from (f"[{result.title}](#{_stem(result)})", scenario.says)
    ours = result.ratio(SHOWN) if SHOWN in result.runs else inf
    missed = ", goal missed" if goal_is_missed(result) else ""
    yield from (f"{ours:.3f}{missed}" if ours < inf else "no run counted", scenario.bar, best)


def _section(result: Result) -> str:
    scenario = named(result.scenario)
    happened = "; ".join(f"{text} at {at:.2f} s" for at, text in result.timeline if at < 2 * result.ideal)
    counts = [len(runs) for runs in result.runs.values()]
    facts = [
        f"{scenario.says}. {result.size / 1e6:.0f} MB, {result.congestion}, ideal {result.ideal:.2f} s",
        f"{min(counts)} run{'s' if min(counts) > 1 else ''} of each program" if counts else "",
        happened,
        checked(result),
        beside(result),
        f"{result.repeated} runs were repeated, because the testbed could not keep up" if result.repeated else "",
    ]
    table = "\n".join([_row(COLUMNS), _rule(COLUMNS), *map(_row, rows(result))])
    picture = (
        f"\n![each source of {result.title} over time]({PICTURES}/{_stem(result)}.svg)\n"
        if typical(result.runs.get(SHOWN, ()))
        else ""
    )
    text = ". ".join(fact[0].upper() + fact[1:] for fact in facts if fact) + "."
    return f"\n## {result.title}\n{fill(text, WIDTH, break_on_hyphens=False)}\n\n{table}\n{picture}"


def _stem(result: Result) -> str:
    return result.title.replace(" (", "-").replace(")", "")


def _row(cells: Sequence[str] | Iterator[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def _rule(cells: Sequence[str]) -> str:
    return "|---" * len(cells) + "|"


def main() -> None:
    write(read(Path(sys.argv[1])), DOCS)


if __name__ == "__main__":
    main()
