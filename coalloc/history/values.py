"""A transfer in this user's history, the summary of a source, and the identifier of a source. Pure."""

from typing import NamedTuple
from urllib.parse import urlsplit

from coalloc.model.reports import Outcome
from coalloc.util.addresses import USUAL_PORTS

__all__ = ["PastTransfer", "SourceSummary", "source_key"]


class PastTransfer(NamedTuple):
    """One source's part in one transfer: times in seconds since the epoch, durations in seconds."""

    url: str
    start: float
    end: float
    bytes: int
    busy_seconds: float
    setup_seconds: float | None
    ranges: int
    streams: int
    strategy: str
    outcome: Outcome
    error: str | None = None


class SourceSummary(NamedTuple):
    """The results of one source so far.

    `rate` is bytes per second over all successful transfers, `last_rate` in the newest of them, `setup_seconds` the
    mean time to the first byte of a range; each is None if unknown. `failures` counts the transfers in which the source
    failed or sent wrong bytes, `last` is the time of its last use (seconds since the epoch).
    """

    source: str
    transfers: int
    bytes: int
    rate: float | None
    last_rate: float | None
    setup_seconds: float | None
    failures: int
    last: float


def source_key(url: str) -> str:
    """Return the identifier of a source: scheme, host and port of a URL, without a scheme's default port.

    >>> source_key("FTP://ann:secret@Host.example:21/a"), source_key("gsiftp://[::1]:2812/a")
    ('ftp://host.example', 'gsiftp://[::1]:2812')
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    port = "" if parts.port in (None, USUAL_PORTS.get(parts.scheme)) else f":{parts.port}"
    return f"{parts.scheme}://{host}{port}"
