"""Spread-in-time-GT (Cheng, V): every T seconds G random hosts begin, even if earlier hosts have not finished."""

from collections.abc import Iterator
from typing import ClassVar

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.by_host import ByHost
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = ["SpreadInTime"]


class SpreadInTime(ByHost):
    """Direct transfers in groups of hosts at fixed times.

    :param group: G in the paper: number of hosts
    :param slot: T in the paper, in seconds
    :raises UsageError: when `group` or `slot` is not positive
    """

    name: ClassVar[str] = "spread-in-time"

    def __init__(self, network: Network, demand: Demand, seed: int = 0, *, group: int = 2, slot: float = 60.0) -> None:
        if slot <= 0:
            raise UsageError(f"invalid slot: {slot} s", "give a slot of more than 0 s")
        super().__init__(network, demand, seed, group=group)
        self._slot = slot
        self._due = 0.0
        self.rationale = f"every {slot:g} s {group} hosts begin to send directly to the destinations"

    def _begin(self, now: float) -> Iterator[Action]:
        self._due = now
        yield from ()

    def _next(self, now: float) -> Iterator[Action]:
        if self._turns and now >= self._due:
            yield from self._some(self._group, now)
            self._due += self._slot
            if self._turns:
                self._alarm(self._due)
