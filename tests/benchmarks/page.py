"""The results page, generated from the file that a benchmark run stores.

    python -m tests.benchmarks.page FILE

writes docs/reference/results.md and the pictures beside it. What the numbers mean is told by
docs/explanation/benchmarks.md.
"""

import sys
from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path

from tests.benchmarks.results import COLUMNS, SHOWN, Result, beside, checked, read, rows, typical
from tests.benchmarks.rivals import RIVALS
from tests.benchmarks.scenarios import SCENARIOS

__all__ = ["page", "write"]

DOCS = Path(__file__).parents[2] / "docs" / "reference"
PICTURES = "results"
TUNED = [name for name in RIVALS if not name.startswith(SHOWN)]

HEAD = """\
# Results

coget beside its peers, on networks that differ, change and fail. `make results` made this page;
[how it is measured](../explanation/benchmarks.md) is told elsewhere. Numbers are medians, with the least and the most;
a scenario that is not here has not been run on this version. Pictures are of one run of coget: above, what each
source's link carried; below, which bytes came from it. A line is where the ideal ends; dots are where something happens
to the network.

"""


def page(results: Sequence[Result]) -> str:
    """The page's Markdown."""
    summary = ["scenario", "what it is", "coget", "wanted", "best peer"]
    lines = [_row(summary), _rule(summary), *(_row(_summary(result)) for result in results)]
    return HEAD + "\n".join(lines) + "\n" + "".join(_section(result) for result in results)


def write(results: Sequence[Result], folder: Path) -> None:
    """Write the page and its pictures."""
    from tests.benchmarks.plots import draw

    pictures = folder / PICTURES
    pictures.mkdir(parents=True, exist_ok=True)
    for result in results:
        if run := typical(result.runs.get(SHOWN, ())):
            draw(result, run, pictures / f"{_stem(result)}.svg")
    (folder / "results.md").write_text(page(results))


def _summary(result: Result) -> Iterator[str]:
    scenario = SCENARIOS[result.scenario]
    peers = [(result.ratio(name), name) for name in TUNED if name in result.runs]
    best = "{:.3f} ({})".format(*min(peers)) if peers else ""
    yield from (f"[{result.title}](#{_stem(result)})", scenario.says)
    ours = result.ratio(SHOWN) if SHOWN in result.runs else inf
    yield from (f"{ours:.3f}" if ours < inf else "no run counted", scenario.bar, best)


def _section(result: Result) -> str:
    scenario = SCENARIOS[result.scenario]
    happened = "; ".join(f"{text} at {at:.2f} s" for at, text in result.timeline if at < 2 * result.ideal)
    counts = [len(runs) for runs in result.runs.values()]
    facts = [
        f"{scenario.says}. {result.size / 1e6:.0f} MB, {result.congestion}, ideal {result.ideal:.2f} s",
        f"{min(counts)} run{'s' if min(counts) > 1 else ''} of each rival" if counts else "",
        happened,
        checked(result),
        beside(result),
        f"{result.repeated} runs did not count, and were repeated" if result.repeated else "",
    ]
    table = "\n".join([_row(COLUMNS), _rule(COLUMNS), *map(_row, rows(result))])
    picture = (
        f"\n![each source of {result.title} over time]({PICTURES}/{_stem(result)}.svg)\n"
        if typical(result.runs.get(SHOWN, ()))
        else ""
    )
    return (
        f"\n## {result.title}\n{'. '.join(fact[0].upper() + fact[1:] for fact in facts if fact)}.\n\n{table}\n{picture}"
    )


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
