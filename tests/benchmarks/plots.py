"""A picture of one run of coget: the rate of each source over time, and below it the ranges that it delivered.

The rates come from the links' counters, the ranges from coget's report. Needs matplotlib (extra `bench`).
"""

import io
import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tests.benchmarks.race import Run, Sample
from tests.benchmarks.results import Result

__all__ = ["draw", "save", "shortened"]

WINDOW = 3
"""Number of samples over which a rate is averaged."""


def draw(result: Result, run: Run, path: Path) -> None:
    """Write the picture of a run as SVG."""
    hosts = list(run.samples[0].sent)
    colours = dict(zip(hosts, _colours(len(hosts)), strict=True))
    # With a fixed salt, the same run always gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "coget", "font.size": 8}):
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        rates, ranges = figure.subplots(2, 1, sharex=True)
        for host in hosts:
            _draw_rate(rates, run.samples, host, colours[host])
        for host in hosts:
            _draw_ranges(ranges, run, host, colours[host])
        for axes in (rates, ranges):
            axes.axvline(result.ideal, color="black", linewidth=0.8)
            for at, _ in result.timeline:
                if at < run.seconds:
                    axes.axvline(at, color="grey", linewidth=0.8, linestyle=":")
        rates.set_ylabel("Mbit/s")
        rates.legend(loc="upper right", ncols=4, fontsize=6)
        ranges.set_ylabel("MB of the file")
        ranges.set_xlabel("seconds")
        ranges.set_xlim(0, max(run.seconds, result.ideal) * 1.02)
        save(figure, path)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a short SVG: coordinates have one decimal, and lines no indentation."""
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    path.write_text(shortened(drawn.getvalue()))


def shortened(picture: str) -> str:
    """Return an SVG with rounded coordinates and no indentation. Numbers in labels are outside of tags and stay."""

    def rounded(number: re.Match[str]) -> str:
        return f"{float(number[0]):.1f}".removesuffix(".0")

    short = re.sub("<[^>]*>", lambda tag: re.sub(r"\d+\.\d{3,}", rounded, tag[0]), picture)
    return re.sub("^ +| +$", "", short, flags=re.MULTILINE)


def _colours(count: int) -> list[tuple[float, ...]]:
    chosen = colormaps["tab10" if count <= 10 else "tab20"]
    return [chosen(number) for number in range(count)]


def _draw_rate(axes: Axes, samples: Sequence[Sample], host: str, colour: tuple[float, ...]) -> None:
    moments, rates = [], []
    for before, after in zip(samples, samples[WINDOW:], strict=False):
        moments.append((before.seconds + after.seconds) / 2)
        rates.append((after.sent[host] - before.sent[host]) * 8e-6 / (after.seconds - before.seconds))
    axes.plot(moments, rates, color=colour, linewidth=1, label=host)


def _draw_ranges(axes: Axes, run: Run, host: str, colour: tuple[float, ...]) -> None:
    """Draw each partial copy of a source as a line from its first byte to its last."""
    for copy in run.copies.get(host, ()):
        axes.plot([copy.first_byte, copy.last_byte], [copy.start / 1e6, copy.end / 1e6], color=colour, linewidth=1.5)
