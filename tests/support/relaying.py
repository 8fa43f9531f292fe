"""A collection method that sends every block over a relay, for tests of relays."""

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import ClassVar

from coalloc.collect.methods import Method
from coalloc.collect.methods.actions import Action, CollectGiveUp, Piece, Send
from coalloc.collect.methods.events import Arrived, CollectStarted, Event, Gone

__all__ = ["Relay"]

BLOCK = 1 << 20


class Relay(Method):
    """A method that sends each block over a host that is neither origin nor destination.

    If that fails, the block is sent directly from its origin. `happened` is called with each event, and the hops that
    the event has ended, before the method reacts to it.
    """

    name: ClassVar[str] = "relay"
    happened: ClassVar[Callable[[Event, Sequence[Send]], object]] = staticmethod(lambda event, ended: None)

    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        type(self).happened(event, ended)
        if isinstance(event, CollectStarted):
            self.rationale = "every block goes over a host in between"
            yield from self._begin()
        for send in ended:
            (to,) = self.demand.files[0].destinations
            if not isinstance(event, Arrived):
                yield from self._straight(send.piece, to)
            elif send.sink != to:
                yield self._send(send.sink, to, send.piece)
        if isinstance(event, Gone) and not self.ledger.running:
            yield CollectGiveUp(event.reason)

    def _begin(self) -> Iterator[Send]:
        ends = {name for file in self.demand.files for name in (*file.holders, *file.destinations)}
        relays = cycle(name for name, host in self.network.hosts.items() if host.relays and name not in ends)
        for file in self.demand.files:
            for start in range(0, max(file.size, 1), BLOCK):
                yield self._send(file.holders[0], next(relays), Piece(file.name, start, min(start + BLOCK, file.size)))

    def _straight(self, piece: Piece, to: str) -> Iterator[Send]:
        missing = self.ledger.missing(piece.file, to)
        wanted = piece in missing or any(gap.start < piece.end and piece.start < gap.end for gap in missing)
        for holder in self.ledger.files[piece.file].holders:
            if wanted and self.ledger.holds(holder, piece):
                yield self._send(holder, to, piece)
                return
