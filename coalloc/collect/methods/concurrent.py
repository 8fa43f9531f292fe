"""Concurrent-G (Cheng, V): a fixed number of random hosts send; when one has finished, another one begins."""

from collections.abc import Iterator
from typing import ClassVar

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.by_host import ByHost
from coalloc.planner.network import Demand, Network

__all__ = ["Concurrent"]


class Concurrent(ByHost):
    """Direct transfers from a fixed number of hosts at a time.

    :param group: G in the paper
    """

    name: ClassVar[str] = "concurrent"

    def __init__(self, network: Network, demand: Demand, seed: int = 0, *, group: int = 4) -> None:
        super().__init__(network, demand, seed, group=group)
        self.rationale = f"{group} hosts at a time send directly to the destinations"

    def _begin(self, now: float) -> Iterator[Action]:
        yield from ()

    def _next(self, now: float) -> Iterator[Action]:
        while self._turns and len(self._sending) < self._group:
            yield from self._some(1, now)
