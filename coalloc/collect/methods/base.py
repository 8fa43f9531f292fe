"""The interface of every method of collecting: it maps events to actions; a ledger prevents lost bytes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from random import Random
from typing import ClassVar

from coalloc.collect.methods.actions import Action, Cancel, CollectDone, Drop, Piece, Send
from coalloc.collect.methods.events import Arrived, Event, Gone, HopFailed, HopFault, Refused
from coalloc.collect.methods.ledger import Ledger
from coalloc.model.promises import RateReport
from coalloc.planner.network import Demand, Network

__all__ = ["Method"]


class Method(ABC):
    """A method, which decides the hops of all pieces and their times. Pure: randomness comes from `seed`.

    :param network: the network as known at the beginning
    :param demand: the data to be moved
    """

    name: ClassVar[str]

    def __init__(self, network: Network, demand: Demand, seed: int = 0) -> None:
        self.network = network
        self.demand = demand
        self.ledger = Ledger(demand)
        self.rationale = ""
        """Explanation of the decisions, in a sentence."""
        self._random = Random(seed)
        self._numbers = count(1)

    def handle(self, event: Event) -> list[Action]:
        """Return the actions that follow from an event."""
        actions: list[Action] = []
        ended: Sequence[Send] = ()
        if isinstance(event, Arrived):
            ended = [self.ledger.arrived(event.hop)]
            actions.extend(self._purge(ended[0]))
        elif isinstance(event, HopFailed):
            ended = [self.ledger.ended(event.hop)]
            if event.fault is HopFault.FILE:
                actions.extend(self._refused(ended[0]))
        elif isinstance(event, Gone):
            ended = self.ledger.gone(event.host)
        elif isinstance(event, Refused):
            self.ledger.give_up(event.file)
        if self.ledger.done:
            return [*actions, CollectDone()]
        for action in self._decide(event, ended):
            actions.append(action)
            self._note(action)
        return actions

    def guarantees(self) -> Mapping[str, RateReport]:
        """Return what classes of files were promised and how it was kept so far, by their patterns."""
        return {}

    @abstractmethod
    def _decide(self, event: Event, ended: Sequence[Send]) -> Iterator[Action]:
        """Yield actions. The ledger has recorded the event already, and records each action once it is yielded.

        :param ended: hops that this event ended, successfully or not
        """

    def _send(self, source: str, sink: str, piece: Piece) -> Send:
        return Send(next(self._numbers), source, sink, piece)

    def _purge(self, send: Send) -> Iterator[Drop]:
        """Drop a piece at a relay after its next host has acknowledged it (Confluence, 3.4)."""
        still = self.ledger.sends(send.source, send.piece)
        if send.piece in self.ledger.staged[send.source] and not still:
            drop = Drop(send.source, send.piece)
            self.ledger.drop(drop)
            yield drop

    def _refused(self, send: Send) -> Iterator[Drop]:
        """Exclude a host that refuses to send a file; if it is a relay, drop the piece, so that it is sent anew."""
        if send.source in self.ledger.files[send.piece.file].holders:
            self.ledger.refused(send.source, send.piece.file)
        elif send.piece in self.ledger.staged[send.source] and not self.ledger.sends(send.source, send.piece):
            drop = Drop(send.source, send.piece)
            self.ledger.drop(drop)
            yield drop

    def _note(self, action: Action) -> None:
        if isinstance(action, Send):
            self.ledger.send(action)
        elif isinstance(action, Cancel):
            self.ledger.ended(action.hop)
        elif isinstance(action, Drop):
            self.ledger.drop(action)
