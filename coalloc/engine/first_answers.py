"""Answers about URLs that came before an engine was chosen. The engine continues with them, and does not ask again."""

import time
from typing import Protocol
from urllib.parse import urlsplit

from coalloc.util.addresses import AddressPolicy
from coalloc.util.dialer import Dialer

__all__ = ["FirstAnswers"]

FRESH = 10.0
"""Seconds after which an answer may be out of date."""

_Key = tuple[str, AddressPolicy, str]
"""URL, policy under which its server was contacted, and route to it."""


class FirstAnswer(Protocol):
    """An answer with its connection."""

    def close(self) -> None:
        """Close the connection."""


class FirstAnswers:
    """The answers that have not been used yet, each with its connection."""

    def __init__(self) -> None:
        self._kept: dict[_Key, tuple[float, FirstAnswer]] = {}
        self._took: dict[_Key, float] = {}

    def keep(self, url: str, dialer: Dialer, answer: FirstAnswer, seconds: float) -> None:
        """Keep the answer about a URL, which came after this time from a connection that this dialer made."""
        self._kept[_key(url, dialer)] = time.monotonic(), answer
        self._took[_key(url, dialer)] = seconds

    def take(self, url: str, dialer: Dialer) -> FirstAnswer | None:
        """Return the answer about a URL, whose connection the caller then owns; None if there is no recent one."""
        came, answer = self._kept.pop(_key(url, dialer), (0.0, None))
        if answer is None or time.monotonic() < came + FRESH:
            return answer
        answer.close()
        return None

    def seconds(self, url: str, dialer: Dialer) -> float:
        """Return the seconds that the answer about a URL took; 0 if there was none."""
        return self._took.get(_key(url, dialer), 0.0)

    def close(self) -> None:
        """Close the connections of all answers that were not used."""
        while self._kept:
            self._kept.popitem()[1][1].close()


def _key(url: str, dialer: Dialer) -> _Key:
    return url, dialer.policy, dialer.route(urlsplit(url).hostname or "")
