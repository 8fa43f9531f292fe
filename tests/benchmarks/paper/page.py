"""The page about the paper: its prose is written by hand; the benchmark writes the tables between marks."""

import re
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks.paper.experiments import EXPERIMENTS, SIZES
from tests.benchmarks.paper.tables import Results, tables

__all__ = ["PAGE", "contents", "filled", "update"]

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "paper.md"
PICTURES = PAGE.with_suffix("")
BEGIN, END = "<!-- {}: python -m {} -->", "<!-- end -->"


def contents(results: Results, rounds: int) -> dict[str, str]:
    """Return the content for each pair of marks on the page, by name."""
    return {
        "runs": _runs(results, rounds),
        "picture gains": f"![gains of all schemes over the best single server]({PICTURES.name}/gains.svg)",
        "picture waits": f"![idle share of the faster server]({PICTURES.name}/waits.svg)",
        **{f"figure {figure}": table for figure, table in tables(results).items()},
    }


def filled(page: str, made: Mapping[str, str], module: str = "tests.benchmarks.paper") -> str:
    """Return the page with these contents between the marks of their names.

    :param module: module that makes the contents, as written in the marks
    :raises ValueError: the page does not have exactly one pair of marks for a name
    """
    for name, content in made.items():
        begin = BEGIN.format(name, module)
        pattern = f"{re.escape(begin)}.*?{re.escape(END)}"
        page, count = re.subn(pattern, lambda _, new=f"{begin}\n{content}\n{END}": new, page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"the page has {count} places for {name}; it needs one: {begin} ... {END}")
    return page


def update(results: Results, rounds: int) -> None:
    """Write the tables into the page, and draw the pictures."""
    from tests.benchmarks.paper.charts import draw_gains, draw_waits

    PAGE.write_text(filled(PAGE.read_text(), contents(results, rounds)))
    PICTURES.mkdir(exist_ok=True)
    draw_gains(results, PICTURES / "gains.svg")
    draw_waits(results, PICTURES / "waits.svg")


def _runs(results: Results, rounds: int) -> str:
    wanted = rounds * len(SIZES) * sum(len(experiment.schemes) for experiment in EXPERIMENTS.values())
    left_out = wanted - len(results.real)
    missing = f"; {left_out} did not count, as the testbed could not keep up" if left_out else ""
    return f"The tables are of {rounds} rounds, {wanted} runs in all{missing}."
