"""PathDelayX (Cheng, IV): each piece leaves its source by the timetable, and then continues as soon as it can."""

from collections.abc import Iterator
from typing import ClassVar

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.timetable import Timetable
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = ["PathDelay"]


class PathDelay(Timetable):
    """A timetable that only sources follow.

    :param factor: X in the paper: factor by which steps are longer than planned
    :param step: seconds; by default about a hundredth of the makespan
    :param unit: bytes that are never split; by default at most 64 KiB
    :param limits: whether the rates of hosts' own network connections count; the paper plans by links only
    :raises UsageError: when some data cannot reach a destination by the known links, or the factor is not positive
    """

    name: ClassVar[str] = "path-delay"

    def __init__(
        self,
        network: Network,
        demand: Demand,
        seed: int = 0,
        *,
        factor: float = 1.0,
        step: float | None = None,
        unit: int | None = None,
        limits: bool = True,
    ) -> None:
        if factor <= 0:
            raise UsageError(f"invalid factor of steps: {factor}", "give a factor of more than 0")
        super().__init__(network, demand, seed, step=step, unit=unit, limits=limits)
        self._seconds = float(self._units.seconds) * factor

    def _begin(self, now: float) -> Iterator[Action]:
        for trip in self._timed:
            self._alarm(now + trip.start * self._seconds, trip)
        yield from ()
