"""The interface for moving the bytes of a simulation, by a fluid or an external packet simulator."""

from typing import Protocol

from coalloc.collect.simulation.underlay import Capacity, Rate, RateShare

__all__ = ["Pair", "SimulatedCarrier"]

Pair = tuple[str, str]


class SimulatedCarrier(Protocol):
    """A carrier of bytes: of the current hop of each pair of hosts, and of endless background streams."""

    def has(self, pair: Pair) -> bool:
        """Return whether the pair has a route."""

    def begin(self, pair: Pair, size: int) -> None:
        """Begin a pair's next hop, of `size` bytes; the previous one is over."""

    def end(self, pair: Pair) -> None:
        """Stop moving bytes of a pair."""

    def change(self, change: Capacity | Rate | RateShare) -> None:
        """Change the network from now on."""

    def moved(self, name: Pair | str) -> float:
        """Return the bytes moved so far by a pair's current hop, or by a stream that shares fairly."""

    @property
    def soonest(self) -> float:
        """Seconds until a hop may be over."""

    def advance(self, seconds: float) -> list[Pair]:
        """Advance the time, at most by `soonest`; return the pairs that have then moved all of their bytes."""
