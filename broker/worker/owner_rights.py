"""Current rights of a task's owner, checked when a lane opens and when work begins."""

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import Caller
from broker.models.collections import AccessRule, Collection
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Work
from broker.services.auth.permissions import Reach, reach_of
from broker.services.collection_paths import led
from broker.storage.collections import CollectionStore
from broker.storage.dialects import read_clock
from broker.storage.tokens import TokenStore

__all__ = ["DENIED", "OwnerRights"]

DENIED = "PERMISSION_DENIED"
"""Fault code, as Globus names it."""
ENDED = "the token of its submission was revoked or has expired"

UNNAMED = {"name": "", "description": ""}
"""What owners may change in a guest collection without a change of rights."""


class OwnerRights:
    """The current rights of a task's owner.

    :param ended: whether the token with which the task was submitted is no longer valid
    """

    def __init__(
        self,
        task: LaneCandidate,
        ended: bool,
        collections: dict[str, Collection],
        rules: dict[str, list[AccessRule]],
    ) -> None:
        self._owner = Caller.model_construct(subject=task.owner, role=task.role, site="")
        self._task = task
        self._ended = ended
        self._collections = collections
        self._rules = rules
        self._reaches: dict[str, Reach] = {}

    @classmethod
    async def of(cls, connection: AsyncConnection, task: LaneCandidate) -> "OwnerRights":
        """Return the rights of a task's owner according to the database."""
        stored, ends = CollectionStore(connection), {end for end in task.pair if end}
        ended = task.token is not None and await TokenStore(connection).ended(task.token, await read_clock(connection))
        return cls(task, ended, *await stored.around(ends))

    @property
    def collections(self) -> dict[str, Collection]:
        """The task's collections that still exist, and the hosts of guest collections, by id."""
        return self._collections

    @property
    def shared(self) -> object:
        """A value that changes when rights in the task's guest collections may have; None for a task without any."""
        ends = [self._collections.get(end) for end in self._task.pair]
        plain = {number: each.model_copy(update=UNNAMED) for number, each in self._collections.items()}
        return (plain, self._rules) if any(each and each.share for each in ends) else None

    def refusal(self) -> str | None:
        """Return the reason why the task may no longer run; None if it may."""
        if self._ended:
            return f"{self._task.owner} may not continue: {ENDED}"
        source, sink = self._task.pair
        return self._refused(source, None, writes=not sink) or (sink and self._refused(sink, None, True)) or None

    def denied(self, work: Work) -> str | None:
        """Return the reason why a work item may not run; None if it may."""
        if self._ended:
            return f"{self._task.owner} may not continue: {ENDED}"
        source, sink = self._task.pair
        if work.kind in ("delete", "remove"):  # in a transfer: an extra entry at the destination
            return self._refused(sink or source, work.source, writes=True)
        return self._refused(source, work.source, False) or self._refused(sink, work.destination, True)

    def no_link(self, work: Work, target: str) -> str | None:
        """Return the reason why a link may not lead to a target; None if it may.

        The owner must be allowed to write to the target, since writing to the link's path writes there.
        """
        if (aim := led(work.destination, target)) is None:
            return f"{work.destination} would lead out of its collection"
        return self._refused(self._task.pair.destination, aim, writes=True)

    def reach(self, number: str) -> Reach:
        """Return the owner's access to a collection."""
        if number not in self._reaches:
            collection = self._collections[number]
            self._reaches[number] = reach_of(self._owner, collection, self._collections, self._rules)
        return self._reaches[number]

    def _refused(self, number: str, path: str | None, writes: bool) -> str | None:
        if number not in self._collections:
            return None  # the collection no longer exists, which the executor reports
        if (reach := self.reach(number)).may(path, writes):
            return None
        action = f"{'write to' if writes else 'read'} {path or 'any path'} of {reach.collection.name}"
        return f"{self._task.owner} may not {action} any more"
