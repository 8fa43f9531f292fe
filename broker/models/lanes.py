"""Lanes, in which workers carry tasks out: the tasks that wait for one, those that are open, and their number."""

from typing import NamedTuple

from broker.models.access import Role
from broker.models.tasks import Options

__all__ = ["CollectionPair", "LaneCandidate", "LaneTuning", "OpenLane"]


class CollectionPair(NamedTuple):
    """A source collection and a destination collection; a task that deletes has no destination."""

    source: str
    destination: str


class LaneCandidate(NamedTuple):
    """A task with work that can begin now: the first of its owner's tasks of its kind between a pair of collections."""

    task: str
    owner: str
    pair: CollectionPair
    kind: str
    options: Options
    priority: int
    deadline: float
    requested_at: float
    started: bool = True
    role: Role = "transfer"
    token: int | None = None


class OpenLane(NamedTuple):
    """A lane that a worker has open."""

    task: str
    owner: str
    pair: CollectionPair


class LaneTuning(NamedTuple):
    """A tuning decision for a pair: its number of lanes, the change of it, and the rate and failures at that time."""

    pair: CollectionPair
    at: float
    concurrency: int
    step: int
    rate: float
    failures: float
    reason: str
