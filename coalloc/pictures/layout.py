"""Positions of hosts in a picture: sources on the left, destinations on the right, relays between them. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from coalloc.planner.network import LinkKey
from coalloc.planner.plan import Path

__all__ = ["Point", "places"]

Point = tuple[float, float]
COLUMNS = 4
"""Columns between left and right, in which relays stand."""


def places(names: Iterable[str], paths: Sequence[Path], flows: Mapping[LinkKey, object]) -> dict[str, Point]:
    """Return the position of each host: x from 0 to 1 in the direction of the bytes, y from 0 to 1; idle hosts below.

    :param paths: the paths of the plan, with the bytes of each
    :param flows: links in use, which determine the order of hosts within a column
    """
    names = list(names)
    parts = _parts(paths)
    columns: dict[float, list[str]] = defaultdict(list)
    for name in names:
        if name in parts:
            columns[round(COLUMNS * parts[name]) / COLUMNS].append(name)
    placed: dict[str, Point] = {}
    for x in sorted(columns):
        ordered = sorted(columns[x], key=lambda name: (-_height(name, flows, placed), names.index(name)))
        for i, name in enumerate(ordered):
            # Columns are shifted in turn, so that an arrow is not hidden behind another between three hosts in a row.
            shift = 0.08 * ((round(x * COLUMNS) % 2) * 2 - 1) if 0 < x < 1 else 0.0
            placed[name] = x, 1 - (i + 0.5) / len(ordered) + shift
    idle = [name for name in names if name not in parts]
    for i, name in enumerate(idle):
        placed[name] = (i + 0.5) / len(idle), -0.25
    return placed


def _parts(paths: Sequence[Path]) -> dict[str, float]:
    """Return how far along its paths each host is, from 0 to 1, averaged over the bytes that pass it."""
    weights: dict[str, float] = defaultdict(float)
    sums: dict[str, float] = defaultdict(float)
    for path in paths:
        for i, name in enumerate(path.hosts):
            weight = path.bytes + 1
            weights[name] += weight
            sums[name] += weight * i / max(1, len(path.hosts) - 1)
    parts = {name: sums[name] / weights[name] for name in weights}
    for path in paths:
        parts[path.hosts[0]] = 0.0
    for path in paths:
        parts[path.hosts[-1]] = 1.0
    return parts


def _height(name: str, flows: Mapping[LinkKey, object], placed: Mapping[str, Point]) -> float:
    """Return the mean height of the hosts that send to this one, so that fewer arrows cross."""
    heights = [placed[key.source][1] for key in flows if key.sink == name and key.source in placed]
    return sum(heights) / len(heights) if heights else 0.5
