"""The interface that moves the bytes of a simulation: a fluid, or an external packet simulator."""

from typing import Protocol

from coalloc.collect.simulation.underlay import Capacity, Rate, RateShare

__all__ = ["Pair", "SimulatedCarrier"]

Pair = tuple[str, str]


class SimulatedCarrier(Protocol):
    """Pairs of hosts, each of which moves bytes or rests, and streams, which always move bytes."""

    def has(self, pair: Pair) -> bool:
        """Return whether the pair has a route."""

    def begin(self, pair: Pair, size: int) -> None:
        """Make a pair move `size` bytes from now on; its previous hop is over."""

    def end(self, pair: Pair) -> None:
        """Stop a pair."""

    def change(self, change: Capacity | Rate | RateShare) -> None:
        """Change the network from now on."""

    def moved(self, name: Pair | str) -> float:
        """Return the bytes moved of a pair's current hop, or by a stream that shares fairly."""

    @property
    def soonest(self) -> float:
        """Seconds until something may be over."""

    def advance(self, seconds: float) -> list[Pair]:
        """Advance the time, at most by `soonest`; return the pairs that have then moved all of their bytes."""
