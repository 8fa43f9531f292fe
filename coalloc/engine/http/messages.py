"""HTTP/1.1 requests as bytes, and heads of responses: status line and header fields (RFC 9112). No I/O.

Only heads as current servers write them are understood: no folded lines, and all lines end in CRLF.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["LONGEST", "NotHTTP", "ResponseHead", "head_end", "read_head", "refuse_other_protocol", "request_bytes"]

MAGIC = b"HTTP/"
"""Beginning of every response."""
LONGEST = 64 * 1024
"""Maximum bytes of the head of a response."""
STATUS = re.compile(r"HTTP/(1\.[01]) ([1-9][0-9]{2})(?: ([^\x00\n\v\f\r\x7f]*))?", re.ASCII)
NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
FORBIDDEN = re.compile(r"[\x00\n\v\f\r\x7f]")
BLANK = re.compile(rb"\n\r?\n")
BACK = 2
"""Bytes of a blank line, except its last one, which may have arrived before the rest."""


class NotHTTP(Exception):
    """A server that speaks another protocol. Internal: `exchange` converts it to an error of coget."""


class ResponseHead(NamedTuple):
    """The head of a response.

    :param version: "1.0" or "1.1"
    :param fields: the fields in their order, with names in lower case
    """

    version: str
    status: int
    reason: str
    fields: tuple[tuple[str, str], ...]

    @property
    def headers(self) -> dict[str, str]:
        """The fields by name; the values of repeated fields are joined by commas."""
        joined: dict[str, str] = {}
        for name, value in self.fields:
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined


def request_bytes(method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return a request without a body."""
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target), *(b"%s: %s" % field for field in headers)]
    return b"\r\n".join((*lines, b"", b""))


def refuse_other_protocol(begun: bytes) -> None:
    """Check the first bytes that a server has sent.

    :raises NotHTTP: when no response begins with them
    """
    if begun[: len(MAGIC)] != MAGIC[: len(begun)]:
        line = begun.splitlines()[0][:100].decode(errors="replace")
        raise NotHTTP(f"it says {line!r}")


def head_end(begun: bytearray, known: int = 0) -> int | None:
    """Return the length of the head at the beginning of `begun`; None if its end has not arrived.

    :param known: number of bytes that were searched before
    """
    found = BLANK.search(begun, max(0, known - BACK))
    return found and found.end()


def read_head(data: bytes) -> ResponseHead:
    r"""Return the head of a response, which ends with a blank line.

    >>> read_head(b"HTTP/1.1 200 OK\r\nETag: 7 \r\n\r\n")
    ResponseHead(version='1.1', status=200, reason='OK', fields=(('etag', '7'),))

    :raises ValueError: for anything else
    """
    first, *lines = _decoded(data).split("\r\n")
    status = STATUS.fullmatch(first)
    if status is None or lines[-2:] != ["", ""]:
        raise ValueError("not the head of an HTTP response")
    return ResponseHead(status[1], int(status[2]), status[3] or "", tuple(_field(line) for line in lines[:-2]))


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not NAME.fullmatch(name) or FORBIDDEN.search(value):
        raise ValueError("not a header field")
    return name.lower(), value.strip(" \t")
