"""The history of transfers for a run with many files: it is read seldom, and written in groups."""

import time
from collections.abc import Iterable
from pathlib import Path

from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer, source_key
from coalloc.model import Estimate

__all__ = ["GroupedHistory"]

FRESH = 10.0
"""Seconds for which an estimate is used again."""
GROUP, SECONDS = 200, 2.0
"""Transfers that are stored together at most, and seconds after which those that wait are stored."""
PAUSES = 20
"""Minimum time between two writes, as a multiple of the time of one: others may have the file locked."""


class GroupedHistory(TransferHistory):
    """The history; `flush` stores what waits, and must be called at the end."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._made: dict[str, tuple[float, Estimate]] = {}
        self._waiting: list[PastTransfer] = []
        self._flushed_at = time.monotonic()

    def add(self, transfers: Iterable[PastTransfer]) -> None:
        self._waiting += transfers
        if len(self._waiting) >= GROUP or time.monotonic() > self._flushed_at + SECONDS:
            self.flush()

    def flush(self) -> None:
        """Store the transfers that wait."""
        waiting, self._waiting, began = self._waiting, [], time.monotonic()
        super().add(waiting)
        now = time.monotonic()
        self._flushed_at = now + PAUSES * (now - began)

    def estimates(self, urls: Iterable[str], now: float) -> dict[str, Estimate]:
        keys = {url: source_key(url) for url in urls}
        new = {key: url for url, key in keys.items() if self._made.get(key, (0.0,))[0] < now - FRESH}
        if new:
            found = super().estimates(new.values(), now)
            self._made |= {key: (now, found[url]) for key, url in new.items()}
        return {url: self._made[key][1] for url, key in keys.items()}
