"""Lanes, in which workers run tasks: tasks that wait for a lane, open lanes, and changes to their number."""

from typing import NamedTuple

from broker.models.callers import Role
from broker.models.tasks import Options

__all__ = ["CollectionPair", "LaneCandidate", "LaneTuning", "LaneTurn", "OpenLane"]


class CollectionPair(NamedTuple):
    """The source and destination collection of tasks; the destination of a deletion is empty."""

    source: str
    destination: str


class LaneCandidate(NamedTuple):
    """A task with work that can start now: the first of an owner's tasks of one kind between two collections."""

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
    """An open lane of a worker."""

    task: str
    owner: str
    pair: CollectionPair


class LaneTurn(NamedTuple):
    """The last lane that a user got between two collections, and when it was opened, in seconds since the epoch."""

    owner: str
    pair: CollectionPair
    at: float


class LaneTuning(NamedTuple):
    """A tuning decision for a pair.

    :param at: seconds since the epoch
    :param concurrency: new number of lanes
    :param step: change of this number
    :param rate: bytes per second before the change
    :param failures: share of failed attempts before the change
    """

    pair: CollectionPair
    at: float
    concurrency: int
    step: int
    rate: float
    failures: float
    reason: str
