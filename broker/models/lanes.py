"""Lanes, in which workers carry tasks out: the tasks that wait for one, those that are open, and their number."""

from typing import NamedTuple

from broker.models.access import Role
from broker.models.tasks import Options

__all__ = ["Candidate", "Open", "Pair", "Tuning"]


class Pair(NamedTuple):
    """A source collection and a destination collection; a task that deletes has no destination."""

    source: str
    destination: str


class Candidate(NamedTuple):
    """A task with work that can begin now: the first of its owner's tasks of its kind between a pair of collections."""

    task: str
    owner: str
    pair: Pair
    kind: str
    options: Options
    priority: int
    deadline: float
    requested_at: float
    started: bool = True
    role: Role = "transfer"
    token: int | None = None


class Open(NamedTuple):
    """A lane that a worker has open."""

    task: str
    owner: str
    pair: Pair


class Tuning(NamedTuple):
    """A tuning decision for a pair: its number of lanes, the change of it, and the rate and failures at that time."""

    pair: Pair
    at: float
    concurrency: int
    step: int
    rate: float
    failures: float
    reason: str
