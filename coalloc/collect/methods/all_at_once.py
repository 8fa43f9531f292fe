"""All-at-once (Cheng, V): every file directly from its holder to its destination, all at the same time."""

from collections.abc import Iterator
from typing import ClassVar

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.travelling import Travelling

__all__ = ["AllAtOnce"]


class AllAtOnce(Travelling):
    """Direct transfers, all at once."""

    name: ClassVar[str] = "all-at-once"

    def _begin(self, now: float) -> Iterator[Action]:
        self.rationale = "every file goes directly to its destination"
        for trip in list(self._direct()):
            yield from self._go(trip, now)
