"""The history of transfers for a run with many files: it is read seldom, and written in groups."""

from collections.abc import Iterable
from pathlib import Path

from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer, source_key
from coalloc.history.waiting_rows import WaitingRows
from coalloc.model.forecasts import Estimate

__all__ = ["GroupedHistory"]

FRESH = 10.0
"""Seconds for which an estimate is used again."""


class GroupedHistory(TransferHistory):
    """The history; `flush` stores what waits, and must be called at the end."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._made: dict[str, tuple[float, Estimate]] = {}
        self._waiting = WaitingRows(super().add)
        self.flush = self._waiting.flush

    def add(self, transfers: Iterable[PastTransfer]) -> None:
        self._waiting.add(transfers)

    def estimates(self, urls: Iterable[str], now: float) -> dict[str, Estimate]:
        keys = {url: source_key(url) for url in urls}
        new = {key: url for url, key in keys.items() if self._made.get(key, (0.0,))[0] < now - FRESH}
        if new:
            found = super().estimates(new.values(), now)
            self._made |= {key: (now, found[url]) for key, url in new.items()}
        return {url: self._made[key][1] for url, key in keys.items()}
