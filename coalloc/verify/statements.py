"""Comparison of a file with all checksums that servers state, of which the verification needs only one. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from coalloc.model import Checksum

__all__ = ["Contradiction", "contradictions"]


class Contradiction(NamedTuple):
    """A checksum that a source states, but the file does not have; `found` is the file's, None if it is unknown."""

    source: int
    stated: Checksum
    found: str | None

    def __str__(self) -> str:
        if self.found is None:
            return f"{self.stated.algorithm} (stated too late to be compared)"
        return f"{self.stated.algorithm} (it states {self.stated.value}, but the file has {self.found})"


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
