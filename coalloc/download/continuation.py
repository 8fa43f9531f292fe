"""The check that bytes of an earlier run belong to the file that is fetched now, done as replicas answer. Pure.

Bytes of the earlier run are trusted if the replica that delivered them has the same version (validator or checksums).
A changed replica and an unchanged one are no longer of the same file: the first to answer decides, and the other one is
left out.
"""

from collections.abc import Mapping, Sequence

from coalloc.errors import ReplicaChanged
from coalloc.model.replicas import Stat
from coalloc.model.validators import identifies
from coalloc.partial_file.format import JournalOrigin
from coalloc.safe_text import redact

__all__ = ["Continuation"]


class Continuation:
    """The earlier run's replicas, compared with the current answers.

    :param earlier: the replicas that delivered the kept bytes, by their numbers in the journal
    :param today: the current replicas, in the order of the sources
    """

    def __init__(self, earlier: Mapping[int, JournalOrigin], today: Sequence[JournalOrigin]) -> None:
        self._earlier = earlier
        self._urls = [origin.url for origin in today]
        self._continued = False
        self._answered: set[int] = set()
        self.begun_anew = False
        """Whether a changed replica is used; then no byte of the earlier run is trusted."""
        self.confirmed: set[int] = set()
        """Numbers of earlier replicas that are unchanged."""
        self.changed: set[int] = set()
        """Numbers of earlier replicas that are known to have changed."""

    @property
    def unanswered(self) -> list[int]:
        """The current sources that delivered bytes in the earlier run and have not answered yet."""
        known = {origin.url for origin in self._earlier.values()}
        return [i for i, url in enumerate(self._urls) if url in known and i not in self._answered]

    def is_same(self, source: int, stat: Stat) -> bool:
        """Return whether a source has the same version as when it delivered bytes to the earlier run."""
        return any(_same(origin, stat) for origin in self._origins(source).values())

    def differs(self, source: int, stat: Stat) -> bool:
        """Return whether a source has another version than when it delivered bytes to the earlier run."""
        origins = self._origins(source).values()
        return not self.is_same(source, stat) and any(_differ(origin, stat) for origin in origins)

    def add_answer(self, source: int, stat: Stat) -> None:
        """Process a source's answer about its replica.

        :raises ReplicaChanged: if it cannot be of the same file as the sources that answered before
        """
        self._answered.add(source)
        url = redact(self._urls[source])
        if self.is_same(source, stat):
            if self.begun_anew:
                raise ReplicaChanged(
                    f"{url} has an old version: another replica has changed", "leave the old replica out"
                )
            self._continued = True
            self.confirmed |= {number for number, origin in self._origins(source).items() if _same(origin, stat)}
        elif self.differs(source, stat):
            self.changed |= self._origins(source).keys()
            if self._continued:
                raise ReplicaChanged(
                    f"{url} was changed since the fetch began, but other replicas were not", "leave one of them out"
                )
            self.begun_anew = True

    def _origins(self, source: int) -> dict[int, JournalOrigin]:
        return {number: origin for number, origin in self._earlier.items() if origin.url == self._urls[source]}


def _same(origin: JournalOrigin, stat: Stat) -> bool:
    """Return whether the validator or a checksum is unchanged."""
    known = identifies(origin.validator) and origin.validator == stat.validator
    return known or bool(set(origin.checksums) & set(stat.checksums))


def _differ(origin: JournalOrigin, stat: Stat) -> bool:
    stated = {checksum.algorithm: checksum.value for checksum in stat.checksums}
    before, now = origin.validator, stat.validator
    return (before is not None and now is not None and before != now) or any(
        stated.get(checksum.algorithm, checksum.value) != checksum.value for checksum in origin.checksums
    )
