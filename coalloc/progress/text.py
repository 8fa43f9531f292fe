"""Progress as lines, for logs and pipes: one a tenth of the file or every few seconds, one a change worth knowing."""

from typing import TextIO

from coalloc.model import Snapshot
from coalloc.progress import human

__all__ = ["Lines"]

LEAST_SECONDS = 1.0
MOST_SECONDS = 5.0


class Lines:
    """Writes what happens to `file`. Its clock is that of the snapshots."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._last: Snapshot | None = None
        self._troubles: set[tuple[str, str]] = set()

    def show(self, snapshot: Snapshot) -> None:
        """Write a line if there is news."""
        self._show_troubles(snapshot)
        if self._is_news(snapshot):
            self._last = snapshot
            self._write(line(snapshot))

    def close(self, finished: bool) -> None:
        """Every line is written already."""

    def _is_news(self, now: Snapshot) -> bool:
        last = self._last
        if last is None or (last.name, last.phase) != (now.name, now.phase):
            return True
        waited = now.seconds - last.seconds
        return waited >= MOST_SECONDS or (waited >= LEAST_SECONDS and _tenth(now) > _tenth(last))

    def _show_troubles(self, snapshot: Snapshot) -> None:
        names = human.labels([source.url for source in snapshot.sources])
        for name, source in zip(names, snapshot.sources, strict=True):
            if source.error and (source.url, source.error) not in self._troubles:
                self._troubles.add((source.url, source.error))
                self._write(f"{human.about(name, source.url, source.error)} ({source.state})")

    def _write(self, text: str) -> None:
        print(text, file=self._file, flush=True)


def line(snapshot: Snapshot) -> str:
    """The whole state in one line."""
    name = human.one_line(snapshot.name)
    if snapshot.phase != "fetching" or not snapshot.size:
        return f"{name}: {snapshot.phase}"
    parts = [
        f"{name}: {human.percent(snapshot.done_bytes, snapshot.size)}",
        f"{human.size(snapshot.done_bytes)} of {human.size(snapshot.size)}",
        human.rate(snapshot.rate),
    ]
    if snapshot.eta_seconds is not None:
        parts.append(f"{human.duration(snapshot.eta_seconds)} left")
    return ", ".join(parts)


def _tenth(snapshot: Snapshot) -> int:
    return 10 * snapshot.done_bytes // snapshot.size if snapshot.size else 0
