"""The experiments of two papers about collecting files, in virtual time, compared with the papers' results.

    python -m tests.benchmarks.collecting cheng|confluence [--seeds N] [--page]
    python -m tests.benchmarks.collecting cheng|confluence --kept
    python -m tests.benchmarks.collecting packets

Prints a table for each figure. `--page` also stores the runs, and writes the tables into the page below
docs/reference/collecting; `--kept` does the same with stored runs. `packets` compares some points with TCP in ns-3.
"""

import argparse
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.benchmarks.collecting import cheng, cheng_tables, confluence, confluence_tables, crosscheck
from tests.benchmarks.collecting.results import keep, kept, run_all
from tests.benchmarks.paper.page import filled

DOCS = Path(__file__).parents[3] / "docs" / "reference" / "collecting"


class Paper(NamedTuple):
    """The experiments of a paper.

    :param tables: module that makes their tables
    :param seeds: default number of networks
    :param drawing: name of the function in `charts` that draws the picture
    """

    runs: ModuleType
    tables: ModuleType
    seeds: int
    drawing: str


PAPERS = {
    "cheng": Paper(cheng, cheng_tables, 5, "draw_loads"),
    "confluence": Paper(confluence, confluence_tables, 3, "draw_gains"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*PAPERS, "packets"])
    parser.add_argument("--seeds", type=int, help="number of random networks")
    parser.add_argument("--page", action="store_true", help="store the runs and write the page")
    parser.add_argument("--kept", action="store_true", help="run nothing; write the page from stored runs")
    options = parser.parse_args()
    if options.what == "packets":
        found = crosscheck.table_of(crosscheck.points())
        print(found)
        if options.page:
            _fill("cheng", {"packets": found})
        return
    paper, file = PAPERS[options.what], DOCS / f"{options.what}.json"
    if options.kept:
        runs = kept(file, paper.runs.Case, paper.runs.Run)
    else:
        runs = list(run_all(paper.runs.run, paper.runs.cases(options.seeds or paper.seeds)))
    if options.page:
        keep(file, runs)
    shown = paper.tables.Runs(runs)
    made = paper.tables.tables(shown)
    for figure, table in made.items():
        print(f"\n{figure}\n{table}")
    if options.page or options.kept:
        from tests.benchmarks.collecting import charts

        _fill(options.what, made)
        getattr(charts, paper.drawing)(shown, DOCS / f"{options.what}.svg")


def _fill(name: str, made: dict[str, str]) -> None:
    page = DOCS / f"{name}.md"
    page.write_text(filled(page.read_text(), made, "tests.benchmarks.collecting"))


if __name__ == "__main__":
    main()
