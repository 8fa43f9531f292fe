"""Progress as lines, for logs and pipes: one per change of phase, tenth of the file, or few seconds."""

from collections.abc import Callable, Sequence
from typing import Generic, TextIO

from coalloc.display import V, View
from coalloc.display.promises import outlook, warning
from coalloc.model.progress import Snapshot
from coalloc.util import human

__all__ = ["Lines", "TextLog"]

LEAST_SECONDS = 1.0
MOST_SECONDS = 5.0


class TextLog(Generic[V]):
    """A printer that writes the events of a transfer or task to `file`. It takes the time from the states.

    :param line: function that describes a state in one line
    :param troubles: function that returns messages to be written once, each with a key that identifies it
    """

    def __init__(
        self, file: TextIO, line: Callable[[V], str], troubles: Callable[[V], Sequence[tuple[object, str]]]
    ) -> None:
        self._file = file
        self._line = line
        self._troubles = troubles
        self._last: V | None = None
        self._reported: set[object] = set()

    def show(self, snapshot: V) -> None:
        """Write a line if anything notable has changed."""
        for known, text in self._troubles(snapshot):
            if known not in self._reported:
                self._reported.add(known)
                self._write(text)
        if self._is_news(snapshot):
            self._last = snapshot
            self._write(self._line(snapshot))

    def close(self, finished: bool) -> None:
        """Do nothing, as every line is already written."""

    def _is_news(self, now: V) -> bool:
        last = self._last
        if last is None or (last.name, last.phase) != (now.name, now.phase):
            return True
        waited = now.seconds - last.seconds
        return waited >= MOST_SECONDS or (waited >= LEAST_SECONDS and _tenth(now) > _tenth(last))

    def _write(self, text: str) -> None:
        print(human.one_line(text), file=self._file, flush=True)


class Lines(TextLog[Snapshot]):
    """A printer that writes the events of transfers."""

    def __init__(self, file: TextIO) -> None:
        super().__init__(file, line, _troubles)


def _troubles(snapshot: Snapshot) -> list[tuple[object, str]]:
    names = human.labels([source.url for source in snapshot.sources])
    failed = [
        ((source.url, source.error), f"{human.about(name, source.url, source.error)} ({source.state})")
        for name, source in zip(names, snapshot.sources, strict=True)
        if source.error
    ]
    return [*failed, *((view.moment, warning(view)) for view in snapshot.warnings)]


def line(snapshot: Snapshot) -> str:
    """Return the whole state in one line."""
    name = human.one_line(snapshot.name)
    if snapshot.phase != "fetching" or not snapshot.size:
        return f"{name}: {snapshot.phase}"
    parts = [
        f"{name}: {human.percent(snapshot.done_bytes, snapshot.size)}",
        f"{human.size(snapshot.done_bytes)} of {human.size(snapshot.size)}",
        human.rate(snapshot.rate),
    ]
    if snapshot.eta_seconds is not None:
        parts.append(human.remaining(snapshot.eta_seconds, snapshot.eta_bounds))
    if promise := snapshot.deadline or snapshot.reading:
        parts.append(outlook(promise))
    return ", ".join(parts)


def _tenth(snapshot: View) -> int:
    return 10 * snapshot.done_bytes // snapshot.size if snapshot.size else 0
