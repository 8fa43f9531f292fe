"""Comparison of a file with all checksums that servers state, of which the verification needs only one. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from coalloc.model.checksums import Checksum
from coalloc.util.checksums import ALGORITHMS, ROLLING

__all__ = ["Contradiction", "compared", "contradictions"]

MOST_SLOW = 2


class Contradiction(NamedTuple):
    """A checksum that a source states, but the file does not have; `found` is the file's, None if it is unknown."""

    source: int
    stated: Checksum
    found: str | None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.stated.algorithm} (not compared)"
        return f"{self.stated.algorithm} (it states {self.stated.value}, but the file has {self.found})"


def compared(stated: Iterable[Checksum]) -> list[str]:
    """Return the algorithms of these checksums with which to compare a file: all quick ones, and few slow ones.

    A server can state any number of checksums, and each slow one costs the time to read the file.
    """
    named = {checksum.algorithm for checksum in stated}
    slow = [algorithm for algorithm in reversed(ALGORITHMS) if algorithm in named and algorithm not in ROLLING]
    return [*slow[:MOST_SLOW], *(algorithm for algorithm in ROLLING if algorithm in named)]


def contradictions(found: Mapping[str, str], stated: Mapping[int, Sequence[Checksum]]) -> list[Contradiction]:
    """Return the checksums that a file does not have, by the sources that state them.

    :param found: the file's digests, by algorithm
    """
    return [
        Contradiction(source, checksum, found.get(checksum.algorithm))
        for source, checksums in stated.items()
        for checksum in checksums
        if found.get(checksum.algorithm) != checksum.value
    ]
