"""Announcements of news within one process: of tasks to be carried out, and of transfers reported."""

from collections.abc import Callable
from typing import Generic, ParamSpec

__all__ = ["Announcements"]

P = ParamSpec("P")


class Announcements(Generic[P]):
    """Calls all subscribers; without any, an announcement has no effect."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[P, None]] = []

    def subscribe(self, subscriber: Callable[P, None]) -> None:
        """Call this function at each announcement from now on; it must return at once."""
        self._subscribers.append(subscriber)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for subscriber in self._subscribers:
            subscriber(*args, **kwargs)
