"""What other programs logged, for this user's history and for a broker's: by the addresses of the sources.

Nothing is rewritten in silence: a line whose source is no address is refused, and one whose source is kept in another
form is told.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coalloc.brokerclient import Broker
from coalloc.config import access
from coalloc.errors import UsageError
from coalloc.history import History, Transfer, source_key
from coalloc.plain import one_line
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.globus import Tasks
    from coalloc.logs import Changed, Log, Refused

__all__ = ["Remembered", "address", "read_log", "remember", "remember_globus", "report_globus"]

SHOWN = 200
"""Characters of a name in what is told of it."""
AT_ONCE = 10_000
"""Transfers in one request to a broker, which takes up to 50,000."""
HOST = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9_.-]{0,252})(?::(?P<port>[0-9]{1,5}))?"
ADDRESS = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]{{0,20}}://(?:[A-Za-z0-9._~!$&'()*+,;=:%-]*@)?{HOST}(?:[/?#][!-~]*)?")
"""A URL of which each program knows the same server: a stricter form than what urllib takes, and mends in silence."""
BARE = re.compile(HOST)
IPV6 = re.compile("[0-9A-Fa-f:.]{2,45}")
PORTS = range(1, 1 << 16)


class Remembered(NamedTuple):
    """What an import brought.

    `kind` says what the log is. Of its `transfers`, those that this user's history can use were `usable`, and of these
    `new` were not in it yet. Lines that are no transfer are `refused`, values that are kept in another form `changed`.
    """

    kind: str
    transfers: int
    usable: int
    new: int
    refused: "Sequence[Refused]" = ()
    changed: "Sequence[Changed]" = ()


def remember(path: Path) -> Remembered:
    """Put what another program logged into this user's history: reads that went well, each once.

    :raises UsageError: when it is no log that is known, or there is no history to put it into
    """
    history = History.open()
    if history.path is None:
        raise UsageError("COGET_HISTORY is off: there is no history to import into", "unset it, or name a file")
    log = read_log(path)
    found = _keep(history, log.kind, len(log.observations), log.observations)
    return found._replace(refused=log.refused, changed=log.changed)


def remember_globus(tasks: "Tasks") -> Remembered:
    """Put what this user's tasks at Globus achieved into the history, each once; where none is kept, nothing is."""
    return _keep(History.open(), "tasks at Globus", tasks.found, tasks.observations.values())


def _keep(history: History, kind: str, count: int, observations: Iterable[Observation]) -> Remembered:
    transfers = [
        Transfer(
            url=each.source,
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
        if each.direction == "read" and each.outcome in ("ok", "slow")
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

    The refused and the changed are in the order of their lines; secrets in them are not shown.

    :param most: bytes that it may have once it is unpacked, each line counted as 256 at least: reading one takes some
        600 bytes of memory
    :param databases: False where a stranger sent the log, whose databases are not opened
    :raises UsageError: when it is no log that is known
    :raises TooMuch: when it is longer
    """
    from coalloc.logs import Changed, Refused
    from coalloc.logs import read_log as read

    log = read(path, most, databases)
    observations: list[Observation] = []
    lines: list[int] = []
    refused, changed = list(log.refused), list(log.changed)
    for line, each in zip(log.lines, log.observations, strict=True):
        server = address(each.source)
        if server is None:
            refused.append(Refused(line, f"source: {one_line(each.source, SHOWN)!r} is no address of a server"))
            continue
        if server != each.source:
            changed.append(Changed(line, "source", one_line(each.source, SHOWN), server))
            each = replace(each, source=server)
        observations.append(each)
        lines.append(line)
    return log._replace(
        observations=observations,
        lines=lines,
        refused=sorted(refused),
        changed=sorted(changed, key=lambda one: one.line),
    )


def address(source: str) -> str | None:
    """What counts as one source, of what a log calls one; None for what is no address.

    >>> address("gsiftp://a.example"), address("FTP://ann:x@A.example:21/b"), address("a.example:2812"), address("::1")
    ('gsiftp://a.example', 'ftp://a.example', 'gsiftp://a.example:2812', 'gsiftp://[::1]')
    >>> address("a b"), address("ftp://"), address("ftp://a:0"), address("../a"), address("ftp://a[b]")
    (None, None, None, None, None)
    """
    if "://" not in source:
        if source.count(":") > 1 and IPV6.fullmatch(source):  # as servers log it
            source = f"[{source}]"
        source = f"gsiftp://{source}" if BARE.fullmatch(source) else ""
    found = ADDRESS.fullmatch(source)
    if found is None or (found["port"] and int(found["port"]) not in PORTS):
        return None
    try:
        return source_key(source)
    except ValueError:  # brackets around what is no address
        return None
