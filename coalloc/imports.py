"""What other programs logged, for this user's history and for a broker's: by the addresses of the sources."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coalloc.brokerclient import Broker
from coalloc.config import access
from coalloc.errors import UsageError
from coalloc.history import History, Transfer, source_key
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.globus import Tasks
    from coalloc.logs import Log

__all__ = ["Remembered", "read_log", "remember", "remember_globus", "report_globus"]

AT_ONCE = 10_000
"""Transfers in one request to a broker, which takes up to 50,000."""


class Remembered(NamedTuple):
    """What an import brought.

    `kind` says what the log is. Of its `transfers`, those that this user's history can use were `usable`, and of these
    `new` were not in it yet.
    """

    kind: str
    transfers: int
    usable: int
    new: int


def remember(path: Path) -> Remembered:
    """Put what another program logged into this user's history: reads that went well, each once.

    :raises UsageError: when it is no log that is known, or there is no history to put it into
    """
    from coalloc.logs import read_log

    history = History.open()
    if history.path is None:
        raise UsageError("COGET_HISTORY is off: there is no history to import into", "unset it, or name a file")
    log = read_log(path)
    return _keep(history, log.kind, len(log.observations), log.observations)


def remember_globus(tasks: "Tasks") -> Remembered:
    """Put what this user's tasks at Globus achieved into the history, each once; where none is kept, nothing is."""
    return _keep(History.open(), "tasks at Globus", tasks.found, tasks.observations.values())


def _keep(history: History, kind: str, count: int, observations: Iterable[Observation]) -> Remembered:
    transfers = [
        Transfer(
            url=url,
            start=each.start,
            end=each.end,
            bytes=each.bytes,
            busy_seconds=each.end - each.start,
            setup_seconds=each.setup_seconds,
            ranges=each.ranges,
            streams=each.streams,
            strategy="imported",
            outcome=each.outcome,
        )
        for each in observations
        if each.direction == "read" and each.outcome in ("ok", "slow") and (url := _address(each.source))
    ]
    return Remembered(kind, count, len(transfers), history.remember(transfers))


async def report_globus(tasks: "Tasks", named: str | None = None) -> int | None:
    """Tell a broker of them: how many were news to it; None where no broker is known.

    :param named: its address, if it is not the user's usual one
    :raises CoallocError: when it does not answer, or refuses
    """
    known = access(named)
    if known is None:
        return None
    broker = Broker(known)
    reports = [
        {
            "id": f"globus.{number}",
            "source": each.source,
            "sink": each.sink,
            "started": each.start,
            "ended": each.end,
            "bytes": each.bytes,
            "ranges": each.ranges,
            "streams": each.streams,
            "concurrency": each.concurrency,
        }
        for number, each in tasks.observations.items()
    ]
    return sum([await broker.report(reports[i : i + AT_ONCE]) for i in range(0, len(reports), AT_ONCE)])


def read_log(path: Path, most: int | None = None, databases: bool = True) -> "Log":
    """What another program logged: transfers by the addresses of their sources, and the lines that are none.

    :param most: bytes that it may have once it is unpacked, each line counted as 256 at least: reading one takes some
        600 bytes of memory
    :param databases: False where a stranger sent the log, whose databases are not opened
    :raises UsageError: when it is no log that is known
    :raises TooMuch: when it is longer
    """
    from coalloc.logs import Refused
    from coalloc.logs import read_log as read

    log = read(path, most, databases)
    known, strange = [], []
    for each in log.observations:
        if url := _address(each.source):
            known.append(replace(each, source=source_key(url)))
        else:
            strange.append(Refused(0, f"{each.source!r} is no address of a server"))
    return log._replace(observations=known, refused=[*log.refused, *strange])


def _address(source: str) -> str | None:
    """The URL of what a log calls a source; None for what is no address."""
    if source.count(":") > 1 and "[" not in source and "://" not in source:  # IPv6, as servers log it
        source = f"[{source}]"
    url = source if "://" in source else f"gsiftp://{source}"
    try:
        return url if not source_key(url).endswith("//") else None
    except ValueError:  # a port that is no number, brackets that do not match
        return None
