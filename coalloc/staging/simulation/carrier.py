"""What moves the bytes of a simulation: a fluid, or packets, if somebody brings a simulator of those."""

from typing import Protocol

from coalloc.staging.simulation.happenings import Capacity, Rate, Share

__all__ = ["Carrier", "Pair"]

Pair = tuple[str, str]


class Carrier(Protocol):
    """Pairs of hosts, of which any may be moving bytes, and streams, which always are."""

    def has(self, pair: Pair) -> bool:
        """Whether there is a way."""

    def begin(self, pair: Pair, size: int) -> None:
        """A pair moves so many bytes from now on, when it has moved what it had to before."""

    def end(self, pair: Pair) -> None:
        """A pair moves nothing any more."""

    def change(self, change: Capacity | Rate | Share) -> None:
        """The network is another one from now on."""

    def moved(self, name: Pair | str) -> float:
        """Bytes of what a pair moves now, or of a stream that shares fairly."""

    @property
    def soonest(self) -> float:
        """Seconds until something may be over."""

    def advance(self, seconds: float) -> list[Pair]:
        """Let time pass, at most so long as `soonest` says; the pairs that are through then."""
