"""Answers about URLs that came before an engine was chosen. The engine continues with them, and does not ask again."""

import time
from typing import Protocol

from coalloc.util.addresses import AddressPolicy

__all__ = ["FirstAnswers"]

FRESH = 10.0
"""Seconds after which an answer may be out of date."""


class FirstAnswer(Protocol):
    """An answer with its connection."""

    def close(self) -> None:
        """Close the connection."""


class FirstAnswers:
    """The answers that have not been used yet, each with its connection."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, AddressPolicy], tuple[float, FirstAnswer]] = {}

    def keep(self, url: str, policy: AddressPolicy, answer: FirstAnswer) -> None:
        """Keep the answer about a URL, whose server was connected under this policy."""
        self._kept[url, policy] = time.monotonic(), answer

    def take(self, url: str, policy: AddressPolicy) -> FirstAnswer | None:
        """Return the answer about a URL, whose connection the caller then owns; None if there is no recent one."""
        came, answer = self._kept.pop((url, policy), (0.0, None))
        if answer is None or time.monotonic() < came + FRESH:
            return answer
        answer.close()
        return None

    def close(self) -> None:
        """Close the connections of all answers that were not used."""
        while self._kept:
            self._kept.popitem()[1][1].close()
