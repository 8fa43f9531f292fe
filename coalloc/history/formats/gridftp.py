"""The transfer log of a GridFTP server (`-log-transfer`, usually `transfer.log`): one line per transfer.

    DATE=20261121214512.348112 HOST=dtn.example.org PROG=globus-gridftp-server NL.EVNT=FTP_INFO
    START=20261121214510.101004 USER=anonymous FILE=/data/run7.root BUFFER=0 BLOCK=262144 NBYTES=104857600 VOLUME=/
    STREAMS=4 STRIPES=1 DEST=[192.0.2.7] TYPE=RETR CODE=226

DATE is the end of the transfer. Both times are in UTC. A file fetched by a client counts as a read from the server, a
file stored by a client as a write.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from coalloc.history.formats.log import TransferLog, gather, others_under_way
from coalloc.util.counts import count
from predictors.observation import Observation

__all__ = ["FIRST", "read"]

FIRST = "DATE="
"""Beginning of each line."""
NAME = re.compile(r"(?<!\S)([A-Z][A-Z.]*)=")
"""Pattern for the beginning of a field. A value may contain blanks, and ends where the next field begins."""
BEFORE = frozenset({"DATE", "HOST", "PROG", "NL.EVNT", "START", "USER", "FILE"})
"""Fields up to the file's name, which may contain text that looks like further fields."""
EVERYTHING = "/"
"""Volume reported by servers that have only one volume; it does not distinguish files."""
DIGITS = 14
WRITES = ("STOR", "ESTO", "APPE", "STOU")
READS = ("RETR", "ERET")


def read(lines: Iterable[tuple[int, str]]) -> TransferLog:
    """Read all transfers of files; listings are left out.

    :param lines: lines with their numbers
    """
    log = gather("the transfer log of a GridFTP server", lines, _transfer)
    return log._replace(observations=others_under_way(log.observations))


def _transfer(line: str) -> Observation | None:
    fields = _fields(line)
    kind, client = fields["TYPE"], fields["DEST"].removeprefix("[").removesuffix("]")
    if kind not in READS + WRITES:
        return None
    stored = kind in WRITES
    return Observation(
        source=_server(client if stored else fields["HOST"]),
        sink=fields["HOST"] if stored else client,
        direction="write" if stored else "read",
        start=_time(fields["START"]),
        end=_time(fields["DATE"]),
        bytes=_count(fields["NBYTES"]),
        streams=_count(fields.get("STREAMS", "1")),
        file_class="" if fields.get("VOLUME") == EVERYTHING else fields.get("VOLUME", ""),
        outcome="ok" if fields.get("CODE", "").startswith("2") else "failed",
    )


def _fields(line: str) -> dict[str, str]:
    """Return the values by their names, in one pass over the line.

    Users choose file names, so text in a name that looks like a field is ignored: of two fields with the same name, the
    first counts if the server writes that field before the file's name, otherwise the last.

    >>> _fields("DATE=1 HOST=h FILE=/a b  c HOST=x TYPE=STOR TYPE=RETR ")
    {'DATE': '1', 'HOST': 'h', 'FILE': '/a b  c', 'TYPE': 'RETR'}
    """
    names = list(NAME.finditer(line))
    ends = [name.start() for name in names[1:]] + [len(line)]
    fields: dict[str, str] = {}
    for name, end in zip(names, ends, strict=False):
        if name[1] not in BEFORE or name[1] not in fields:
            fields[name[1]] = line[name.end() : end].rstrip()
    return fields


def _server(host: str) -> str:
    return f"gsiftp://[{host}]" if ":" in host else f"gsiftp://{host}"


def _count(digits: str) -> int:
    """Parse a whole number. :raises ValueError: when it is not one"""
    number = count(digits)
    if number is None:
        raise ValueError(f"{digits!r} is not a whole number")
    return number


def _time(digits: str) -> float:
    """Parse a time such as 20261121214512.348112 as seconds since the epoch."""
    whole, _, part = digits.partition(".")
    if len(whole) != DIGITS or not all(each.isascii() and each.isdigit() for each in (whole, part or "0")):
        raise ValueError(f"{digits!r} is not a time of {DIGITS} digits")  # strptime misreads fewer digits
    moment = datetime.strptime(whole, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    return moment.timestamp() + float(f"0.{part or 0}")
