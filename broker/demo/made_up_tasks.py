"""The tasks of the demonstration: succeeded, failed, canceled, paused, waiting and running ones."""

from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from broker.demo.world import DAY, PEOPLE, World
from broker.models.catalogue import Dataset

__all__ = ["Errand", "FailedAttempt", "Fate", "Tuned", "errands", "tunings"]

Fate = Literal["succeeded", "failed", "canceled", "running", "paused", "waiting"]
DONE = 30
LASTLY: tuple[Fate, ...] = ("failed", "failed", "canceled", "running", "running", "paused", "waiting", "waiting")
DESTINATIONS = {
    "Geneva data": "geneva",
    "Chicago store": "chicago",
    "Kyoto archive": "kyoto",
    "Hamburg scratch": "hamburg",
}
"""Collections, with their sites."""
LABELS = ("hits for the talk", "tracks, second pass", "nightly copy", "events to train on", "tables for the paper")
TROUBLES = (
    ("CONNECTION_BROKEN", "the connection was lost: Connection reset by peer"),
    ("TIMEOUT", "no byte came for 30 seconds"),
    ("ENDPOINT_TOO_BUSY", "421 Too many connections, try again later"),
    ("VERIFY_CHECKSUM", "its sha256 is not that of the dataset"),
)
CLIMB = (
    (4, "no earlier rate to compare with: trying one more lane"),
    (5, "one more lane brought +19%: trying another"),
    (6, "one more lane brought +11%: trying another"),
    (7, "one more lane brought +2%: removed again"),
    (6, "a further lane did not help"),
    (3, "31% of attempts failed: half as many lanes"),
)


class FailedAttempt(NamedTuple):
    """A failed attempt: the index of its file, its error, and the seconds from the task's start."""

    file: int
    code: str
    error: str
    after: float


class Errand(NamedTuple):
    """A task that copies datasets to a collection.

    :param age: seconds from its submission to the end of the history
    :param seconds: duration so far; 0 if it has not started
    :param done: number of copied files
    """

    owner: str
    label: str
    destination: str
    files: Sequence[Dataset]
    age: float
    seconds: float
    done: int
    fate: Fate
    troubles: Sequence[FailedAttempt]

    @property
    def site(self) -> str:
        """The site of its destination."""
        return DESTINATIONS[self.destination]


class Tuned(NamedTuple):
    """A change to the number of lanes to a destination, `age` seconds before the end of the history."""

    destination: str
    age: float
    concurrency: int
    step: int
    rate: float
    failures: float
    reason: str


def errands(made: World, seed: int) -> list[Errand]:
    """Return the tasks of two weeks, the oldest first."""
    chance = Random(f"errands {seed}")
    ages = sorted((chance.uniform(0.3, 14) * DAY for _ in range(DONE)), reverse=True)
    found = [_errand(made, "succeeded", age, chance) for age in ages]
    return found + [_errand(made, fate, 3000.0 - 300 * i, chance) for i, fate in enumerate(LASTLY)]


def _errand(made: World, fate: Fate, age: float, chance: Random) -> Errand:
    files = chance.sample(list(made.datasets), chance.randint(3, 12))
    seconds = sum(file.size or 0 for file in files) / chance.uniform(40e6, 250e6) + 2 * len(files)
    done = len(files)
    if fate != "succeeded":
        seconds, done = min(seconds, age / 2), len(files) // 2
    if fate == "waiting":
        seconds, done = 0.0, 0
    many = 1 if fate == "failed" else chance.choice((0, 0, 1, 3)) if seconds else 0
    troubles = [
        FailedAttempt(min(i, len(files) - 1), *chance.choice(TROUBLES), seconds * (i + 1) / (many + 1))
        for i in range(many)
    ]
    destination = chance.choice(list(DESTINATIONS))
    return Errand(chance.choice(PEOPLE), chance.choice(LABELS), destination, files, age, seconds, done, fate, troubles)


def tunings(seed: int) -> list[Tuned]:
    """Return changes to the numbers of lanes to two destinations, oldest first."""
    chance = Random(f"tunings {seed}")
    found = []
    for hours, destination in enumerate(list(DESTINATIONS)[:2], 2):
        rate, before = chance.uniform(50e6, 150e6), 3
        for i, (concurrency, reason) in enumerate(CLIMB):
            failures = 0.31 if "failed" in reason else 0.0
            rate *= 1.02 + 0.17 * (concurrency > before) * chance.random()
            age = hours * 3600.0 - 60.0 * i
            found.append(Tuned(destination, age, concurrency, concurrency - before, rate, failures, reason))
            before = concurrency
    return sorted(found, key=lambda each: -each.age)
