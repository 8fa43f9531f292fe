"""All-at-once (Cheng, V): every file straight from its holder to where it is wanted, all side by side."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

from coalloc.staging.actions import Action, GiveUp, Piece, Send
from coalloc.staging.events import Event, Started
from coalloc.staging.methods.base import Method

__all__ = ["AllAtOnce"]


class AllAtOnce(Method):
    """Direct, at once."""

    name: ClassVar[str] = "all-at-once"

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        if isinstance(event, Started):
            self.rationale = "every file goes straight to where it is wanted"
            for file in self.demand.files:
                for to in file.destinations:
                    yield self._send(file.holders[0], to, Piece(file.name, 0, file.size))
        elif ended and not self.ledger.running:
            yield GiveUp(getattr(event, "reason", "nothing is on its way any more"))
