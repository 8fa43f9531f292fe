"""The network of a plan: hosts, the links in use and those available, and in red the limits of the plan."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from coalloc.planner.network import Host, LinkKey, Network
from coalloc.planner.results import Limit, PlannedPath, TransferPlan
from coalloc.util import human

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Point", "graph", "placed", "places"]

Point = tuple[float, float]
FEW = 12
"""Maximum number of hosts for which idle hosts, unused links and limits that do not bind are drawn."""
LABELS = 30
"""Maximum number of links for which rates are shown."""
WIDEST = 5.0
"""Width in points of the arrow of the fastest link."""
BEND = 0.14
BOX = {"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8}
LIMITS, FLOWS, IDLE = "#c1121f", "#1d6fa5", "#c8c8c8"
COLUMNS = 4
"""Number of steps in x from the sources to the destinations; relays are placed on these steps."""


def places(names: Iterable[str], paths: Sequence[PlannedPath], flows: Mapping[LinkKey, object]) -> dict[str, Point]:
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
            # Columns are shifted up and down in turn, so that no arrow is hidden behind others of three hosts in a row.
            shift = 0.08 * ((round(x * COLUMNS) % 2) * 2 - 1) if 0 < x < 1 else 0.0
            placed[name] = x, 1 - (i + 0.5) / len(ordered) + shift
    idle = [name for name in names if name not in parts]
    for i, name in enumerate(idle):
        placed[name] = (i + 0.5) / len(idle), -0.25
    return placed


def _parts(paths: Sequence[PlannedPath]) -> dict[str, float]:
    """Return the mean position of each host along its paths, from 0 to 1, weighted by the bytes that pass it."""
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


def placed(network: Network, plan: TransferPlan) -> dict[str, Point]:
    """Return the positions of the hosts that are drawn."""
    part = _taking_part(plan)
    names = [name for name in network.hosts if len(network.hosts) <= FEW or name in part]
    return places(names, plan.paths, plan.flows)


def _taking_part(plan: TransferPlan) -> set[str]:
    return {name for path in plan.paths for name in path.hosts}


def graph(axes: "Axes", network: Network, plan: TransferPlan, where: Mapping[str, Point]) -> None:
    """Draw the network of a plan."""
    rates = {key: float(rate) for key, rate in plan.rates.items()}
    limits = {limit for limit, price in plan.certificate.prices.items() if price}
    part, small = _taking_part(plan), len(network.hosts) <= FEW
    axes.set_axis_off()
    heights = [y for _, y in where.values()]
    axes.set_xlim(-0.15, 1.15)
    margin = 0.2 if small else 0.05
    axes.set_ylim(min(heights, default=0) - margin, max(heights, default=1) + margin)
    fastest = max(rates.values(), default=1.0)
    if small:
        for key in network.links:
            if key not in rates:
                _arrow(axes, key, where, LIMITS if _limits(key, limits) else IDLE, 0.6)
    for key, rate in rates.items():
        colour = LIMITS if _limits(key, limits) else FLOWS
        _arrow(axes, key, where, colour, max(0.8, WIDEST * rate / fastest))
        if len(rates) <= LABELS:
            _rate(axes, network, key, where, rate, colour)
    for name, point in where.items():
        lines = _lines(network.hosts[name], limits)
        _host(axes, name, point, [line for line in lines if small or line[1]], name in part)
    if not small and len(part) < len(network.hosts):
        note = f"{len(network.hosts) - len(part)} other hosts are not used"
        axes.text(1.0, 0.0, note, transform=axes.transAxes, ha="right", color="grey")


def _limits(key: LinkKey, limits: set[Limit]) -> bool:
    return Limit("link", key) in limits


def _arrow(axes: "Axes", key: LinkKey, where: Mapping[str, Point], colour: str, width: float) -> None:
    from matplotlib.patches import FancyArrowPatch

    axes.add_patch(
        FancyArrowPatch(
            where[key.source], where[key.sink], connectionstyle=f"arc3,rad={BEND}", arrowstyle="-|>",
            mutation_scale=7 + 2 * width, shrinkA=16, shrinkB=16, linewidth=width, color=colour, zorder=1,
        )
    )  # fmt: skip


def _rate(axes: "Axes", network: Network, key: LinkKey, where: Mapping[str, Point], rate: float, colour: str) -> None:
    """Write a rate on its arrow, at the middle or nearer to its tail; the arrow is a Bézier curve on the screen."""
    (ax, ay), (bx, by) = (axes.transData.transform(where[name]) for name in (key.source, key.sink))
    t = 0.3 if abs(bx - ax) > abs(by - ay) / 2 else 0.5
    cx, cy = (ax + bx) / 2 + BEND * (by - ay), (ay + by) / 2 - BEND * (bx - ax)
    x = (1 - t) ** 2 * ax + 2 * t * (1 - t) * cx + t * t * bx
    y = (1 - t) ** 2 * ay + 2 * t * (1 - t) * cy + t * t * by
    label = f"{human.rate(rate)} of {human.rate(network.links[key].capacity)}"
    x, y = axes.transData.inverted().transform((x, y))
    axes.text(x, y, label, color=colour, ha="center", va="center", fontsize=7, bbox=BOX, zorder=2)


def _host(axes: "Axes", name: str, point: Point, lines: Sequence[tuple[str, bool]], takes_part: bool) -> None:
    x, y = point
    axes.plot([x], [y], "o", markersize=14, color="white", markeredgecolor="black" if takes_part else IDLE, zorder=3)
    axes.annotate(
        name, point, (0, 11), textcoords="offset points", ha="center", weight="bold", zorder=4, bbox=BOX,
        color="black" if takes_part else "grey",
    )  # fmt: skip
    for line, (text, limited) in enumerate(lines):
        axes.annotate(
            text, point, (0, -17 - 9 * line), textcoords="offset points", ha="center", fontsize=7, zorder=4, bbox=BOX,
            color=LIMITS if limited else "dimgrey",
        )  # fmt: skip


def _lines(host: Host, limits: set[Limit]) -> list[tuple[str, bool]]:
    """Return the limits of a host as text, and whether each one limits the plan."""
    lines: list[tuple[str, bool]] = []
    for isp in host.isps:
        name = f"{isp.name} " if isp.name else ""
        if isp.up is not None:
            lines.append((f"{name}up {human.rate(isp.up)}", Limit("up", (host.name, isp.name)) in limits))
        if isp.down is not None:
            lines.append((f"{name}down {human.rate(isp.down)}", Limit("down", (host.name, isp.name)) in limits))
    if host.io is not None:
        lines.append((f"disks {human.rate(host.io)}", Limit("io", host.name) in limits))
    if host.storage is not None:
        lines.append((f"relay space {human.size(host.storage)}", False))
    return lines
