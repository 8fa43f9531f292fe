"""The network as a fluid: hops and background streams, which move bytes at fair rates."""

from collections.abc import Callable, Iterable, Mapping, MutableSequence
from typing import Any, NamedTuple

from coalloc.collect.simulation.carrier import Pair
from coalloc.collect.simulation.sharing import FlowLinkMatrix, advance, share, soonest
from coalloc.collect.simulation.underlay import Capacity, Rate, RateShare, Underlay
from predictors.compiled import compiled, floats, integers

__all__ = ["Fluid"]


class _Memory(NamedTuple):
    """The working memory of `sharing.share`."""

    left: MutableSequence[float]
    load: MutableSequence[float]
    users: MutableSequence[int]
    live: MutableSequence[int]
    state: MutableSequence[int]


class Fluid:
    """A carrier of all flows over the links of an underlay.

    :param fast: whether to compile frequently called functions; needs numba, and takes some seconds once
    """

    def __init__(self, underlay: Underlay, fast: bool) -> None:
        fair = [stream for stream in underlay.streams if stream.rate is None]
        self._steady = {stream.name: stream for stream in underlay.streams if stream.rate is not None}
        names: list[Pair | str] = [*underlay.routes, *(stream.name for stream in fair)]
        self._flows = {name: number for number, name in enumerate(names)}
        self._pairs = list(underlay.routes)
        self._links = {name: number for number, name in enumerate(underlay.capacities)}
        self._capacities = list(underlay.capacities.values())
        self._taken = [0.0] * len(self._links)
        routes = [*underlay.routes.values(), *(stream.route for stream in fair)]
        woven = [{self._links[link]: weight for link, weight in route.items()} for route in routes]
        self._weave = FlowLinkMatrix.of(woven, len(self._links), fast)
        self._fast = fast
        self._running = set(range(len(self._pairs), len(self._flows)))
        self._prepare([underlay.shares.get(pair, 1.0) for pair in self._pairs] + [stream.share for stream in fair])
        for stream in self._steady.values():
            self._take(stream.route, stream.rate or 0.0)

    def _prepare(self, shares: Iterable[float]) -> None:
        flows, links, fast = len(self._flows), len(self._links), self._fast
        self._free = floats(self._capacities, fast)
        self._shares = floats(shares, fast)
        self._rates, self._moved = floats([0.0] * flows, fast), floats([0.0] * flows, fast)
        self._sizes = floats([float("inf")] * flows, fast)
        whole = (_whole(count, fast) for count in (links, links, flows))
        self._memory = _Memory(floats([0.0] * links, fast), floats([0.0] * links, fast), *whole)
        self._over = _whole(flows, fast)
        self._active = integers(sorted(self._running), fast)
        self._changed = True

    def has(self, pair: Pair) -> bool:
        """Return whether the pair has a route."""
        return pair in self._flows

    def begin(self, pair: Pair, size: int) -> None:
        """Make a pair move `size` bytes from now on."""
        flow = self._flows[pair]
        self._sizes[flow], self._moved[flow] = float(size), 0.0
        self._changed |= flow not in self._running
        self._running.add(flow)

    def end(self, pair: Pair) -> None:
        """Stop a pair."""
        self._running.discard(self._flows[pair])
        self._changed = True

    def change(self, change: Capacity | Rate | RateShare) -> None:
        """Change the network from now on."""
        match change:
            case Capacity(_, link, bytes_per_second):
                number = self._links[link]
                self._capacities[number] = bytes_per_second
                self._refresh(number)
            case Rate(_, name, bytes_per_second):
                stream = self._steady[name]
                self._take(stream.route, bytes_per_second - (stream.rate or 0.0))
                self._steady[name] = stream._replace(rate=bytes_per_second)
            case RateShare(_, of, share):
                self._shares[self._flows[of]] = share
                self._changed = True

    def _take(self, route: Mapping[str, float], more: float) -> None:
        for link, weight in route.items():
            number = self._links[link]
            self._taken[number] += weight * more
            self._refresh(number)

    def _refresh(self, link: int) -> None:
        # Steady streams may take more than the capacity, and rounding may leave their sum slightly below zero.
        self._free[link] = max(0.0, self._capacities[link] - max(0.0, self._taken[link]))
        self._changed = True

    def moved(self, name: Pair | str) -> float:
        """Return the bytes moved so far by a pair's hop, or by a stream that shares fairly."""
        return self._moved[self._flows[name]]

    @property
    def soonest(self) -> float:
        """Seconds until a pair has moved all of its bytes."""
        if self._changed:
            self._changed = False
            self._active = integers(sorted(self._running), self._fast)
            self._call(share)(self._weave, self._active, self._free, self._shares, self._rates, *self._memory)
        seconds: float = self._call(soonest)(self._active, self._sizes, self._moved, self._rates)
        return seconds

    def advance(self, seconds: float) -> list[Pair]:
        """Move bytes for `seconds`, at the rates computed by `soonest`; return the pairs that are then done."""
        count = self._call(advance)(self._active, self._sizes, self._moved, self._rates, seconds, self._over)
        return [self._pairs[flow] for flow in self._over[:count]]

    def _call(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compiled(function) if self._fast else function


def _whole(count: int, fast: bool) -> MutableSequence[int]:
    return integers([0] * count, fast)
