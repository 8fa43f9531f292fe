"""The results of a scenario as text for a terminal."""

from tests.benchmarks.results import COLUMNS, Result, beside, checked, rows
from tests.benchmarks.scenarios import named

__all__ = ["show"]


def show(result: Result) -> str:
    """Return a heading, and a table with one line per rival."""
    scenario = named(result.scenario)
    head = [
        f"\n{result.title}: {scenario.says}; {result.size / 1e6:.0f} MB, {result.congestion}",
        f"  ideal {result.ideal:.2f} s; goal of coget: {scenario.bar}",
        *(f"  {fact}" for fact in (checked(result), beside(result)) if fact),
    ]
    if result.repeated:
        head.append(f"  {result.repeated} runs were repeated, because the testbed could not keep up")
    cells = [COLUMNS, *rows(result)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(COLUMNS))]
    return "\n".join([*head, *("  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)])
