"""The page about the paper: the words are written by hand, the tables between their marks by the benchmark."""

import re
from pathlib import Path

from tests.benchmarks.paper.tables import Results, tables

__all__ = ["filled", "update"]

PAGE = Path(__file__).parents[3] / "docs" / "explanation" / "paper.md"
PICTURES = PAGE.with_suffix("")
BEGIN, END = "<!-- figure {}: python -m tests.benchmarks.paper -->", "<!-- end -->"


def filled(page: str, made: dict[str, str]) -> str:
    """The page with these tables, by figure, in the places of those before.

    :raises ValueError: the page has no place for one
    """
    for figure, table in made.items():
        begin = BEGIN.format(figure)
        pattern = f"{re.escape(begin)}.*?{re.escape(END)}"
        page, count = re.subn(pattern, lambda _, new=f"{begin}\n{table}\n{END}": new, page, flags=re.DOTALL)
        if count != 1:
            raise ValueError(f"{PAGE.name} has {count} places for figure {figure}; it needs one: {begin} ... {END}")
    return page


def update(results: Results) -> None:
    """Write tables and pictures."""
    from tests.benchmarks.paper.charts import draw_gains, draw_waits

    PAGE.write_text(filled(PAGE.read_text(), tables(results)))
    PICTURES.mkdir(exist_ok=True)
    draw_gains(results, PICTURES / "gains.svg")
    draw_waits(results, PICTURES / "waits.svg")
