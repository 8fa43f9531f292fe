"""Import of other programs' logs into this user's history and a broker's, by the addresses of the sources.

No change is silent: a line whose source is not an address is refused, and one whose source is stored in another form is
reported.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from coalloc.broker_client import Broker
from coalloc.config import access
from coalloc.errors import UsageError
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer, source_key
from coalloc.safe_text import one_line
from predictors.observation import Observation

if TYPE_CHECKING:
    from coalloc.history.formats import ChangedValue, RefusedLine, TransferLog
    from coalloc.history.globus_client import GlobusTasks

__all__ = ["Remembered", "address", "read_log", "remember", "remember_globus", "report_globus"]

SHOWN = 200
"""Characters of a name that are shown in a report."""
AT_ONCE = 10_000
"""Transfers in one request to a broker, which accepts up to 20,000."""
HOST = r"(?:\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9_][A-Za-z0-9_.-]{0,252})(?::(?P<port>[0-9]{1,5}))?"
ADDRESS = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]{{0,20}}://(?:[A-Za-z0-9._~!$&'()*+,;=:%-]*@)?{HOST}(?:[/?#][!-~]*)?")
"""A URL in which every program sees the same server: stricter than urllib, which silently corrects some URLs."""
BARE = re.compile(HOST)
IPV6 = re.compile("[0-9A-Fa-f:.]{2,45}")
PORTS = range(1, 1 << 16)


class Remembered(NamedTuple):
    """The results of an import.

    `kind` is the format of the log, `transfers` the number of its transfers; this user's history can use `usable` of
    them, of which `new` were not in it yet. `refused` are lines that are not transfers, `changed` values that are
    stored in another form.
    """

    kind: str
    transfers: int
    usable: int
    new: int
    refused: "Sequence[RefusedLine]" = ()
    changed: "Sequence[ChangedValue]" = ()


def remember(path: Path) -> Remembered:
    """Add another program's log to this user's history: successful reads, each once.

    :raises UsageError: when the format is unknown, or no history is kept
    """
    history = TransferHistory.open()
    if history.path is None:
        raise UsageError("COGET_HISTORY is off: there is no history to import into", "unset it, or set it to a file")
    log = read_log(path)
    found = _keep(history, log.kind, len(log.observations), log.observations)
    return found._replace(refused=log.refused, changed=log.changed)


def remember_globus(tasks: "GlobusTasks") -> Remembered:
    """Add this user's tasks at Globus to the history, each once; do nothing if no history is kept."""
    return _keep(TransferHistory.open(), "tasks at Globus", tasks.found, tasks.observations.values())


def _keep(history: TransferHistory, kind: str, count: int, observations: Iterable[Observation]) -> Remembered:
    transfers = [
        PastTransfer(
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


async def report_globus(tasks: "GlobusTasks", named: str | None = None) -> int | None:
    """Report the tasks to a broker; return the number of new ones, or None if no broker is known.

    :param named: the broker's address, if it is not the user's usual one
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


def read_log(path: Path, most: int | None = None, databases: bool = True) -> "TransferLog":
    """Read another program's log: transfers by the addresses of their sources, and the refused lines.

    Refused and changed lines are sorted by number; secrets in them are not shown.

    :param most: limit in bytes for the unpacked log; a line counts as at least 256, as reading it takes some 600 bytes
        of memory
    :param databases: whether to open databases; False for the logs of untrusted users
    :raises UsageError: when the format is unknown
    :raises TooMuch: when the log exceeds `most`
    """
    from coalloc.history.formats import ChangedValue, RefusedLine
    from coalloc.history.formats import read_log as read

    log = read(path, most, databases)
    observations: list[Observation] = []
    lines: list[int] = []
    refused, changed = list(log.refused), list(log.changed)
    for line, each in zip(log.lines, log.observations, strict=True):
        server = address(each.source)
        if server is None:
            refused.append(RefusedLine(line, f"source: {one_line(each.source, SHOWN)!r} is not an address of a server"))
            continue
        if server != each.source:
            changed.append(ChangedValue(line, "source", one_line(each.source, SHOWN), server))
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
    """Return the source identifier for a source in a log; None if it is not an address.

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
    except ValueError:  # brackets around text that is not an address
        return None
