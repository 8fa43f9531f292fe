"""The forwarding table of a depot: the next hop of sessions with a loose route, by destination.

The table is a TOML file; the first entry that covers a destination counts, and without one the depot connects to the
destination itself:

    [[next]]
    destinations = ["198.51.100.0/24", "gridftp.example:2811-2812"]
    depot = "depot-b.example:4000"
    ticket = "t1...."    # only if that depot needs one
    key = "0123..."      # the ticket's key, in hexadecimal digits

Names in it are matched as in `permissions`.
"""

import logging
import tomllib
from collections.abc import Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any, NamedTuple

from coalloc.depot.daemon.permissions import covers
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.route import depot_of
from coalloc.errors import UsageError

__all__ = ["ForwardingTable", "NextHop"]

log = logging.getLogger(__name__)

FIELDS = {"destinations", "depot", "ticket", "key"}
FORM = 'write [[next]], and below it destinations = ["HOST:PORT"] and depot = "HOST:PORT"'


class NextHop(NamedTuple):
    """A depot that leads to some destinations.

    :param ticket: its ticket and the ticket's key; None if it needs none
    """

    depot: HostPort
    ticket: tuple[str, bytes] | None = None


class ForwardingTable:
    """A forwarding table, read from its file again whenever the file has changed.

    If the changed file is invalid, the earlier table stays in force.

    :raises UsageError: if the file cannot be used
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._entries: list[tuple[list[DestinationPattern], NextHop]] = []
        self._read_if_changed()

    def _read_if_changed(self) -> None:
        try:
            status = self._path.stat()
            if not S_ISREG(status.st_mode):  # to open a pipe could take for ever
                raise UsageError(f"the table {self._path} is not a file", "write it to a file, as it is read again")
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp != self._stamp:
                text = self._path.read_text()
                self._stamp = stamp
                self._entries = _entries(tomllib.loads(text))
        except OSError as error:
            raise UsageError(f"cannot read the table {self._path}: {error.strerror}", "make it readable") from None
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise UsageError(f"invalid table {self._path}: {error}", FORM) from None

    async def next_hop(self, to: HostPort, addresses: Sequence[str]) -> NextHop | None:
        """Return the next hop to a destination with these addresses; None to connect to it directly."""
        try:
            self._read_if_changed()
        except UsageError as error:
            log.warning("%s; the earlier table stays in force", error.message)
        for patterns, hop in self._entries:
            for pattern in patterns:
                for address in addresses:
                    if await covers(pattern, to, address):
                        return hop
        return None


def _entries(table: dict[str, Any]) -> list[tuple[list[DestinationPattern], NextHop]]:
    """Return the entries of a table.

    :raises ValueError: if it is invalid
    :raises TypeError: the same
    """
    entries = table.pop("next", [])
    if table or not isinstance(entries, list):
        raise ValueError(f"{next(iter(table), 'next')!r} is not [[next]]")
    return list(map(_entry, entries))


def _entry(fields: dict[str, Any]) -> tuple[list[DestinationPattern], NextHop]:
    destinations, depot = fields.get("destinations"), fields.get("depot")
    if not isinstance(destinations, list) or not isinstance(depot, str) or fields.keys() - FIELDS:
        raise ValueError("an entry needs destinations, which are a list, and a depot; ticket and key may follow")
    if ("ticket" in fields) != ("key" in fields):
        raise ValueError("a ticket and its key must be given together")
    ticket = (fields["ticket"].strip(), bytes.fromhex(fields["key"])) if "ticket" in fields else None
    return list(map(DestinationPattern.parse, destinations)), NextHop(depot_of(depot), ticket)
