"""Markers that a receiving server sends during a transfer: bytes received, and ranges on its disk. Pure.

    112-Perf Marker                       every few seconds, and at the beginning and the end
     Stripe Index: 0
     Stripe Bytes Transferred: 10240
    112 End.
    111 Range Marker 0-10240              after the former, if ranges were added

Offsets are counted from the beginning of the transfer (GFD.20, 3.4; in RFC 959 code 110 is for text only).
"""

import re

from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import LimitExceeded
from coalloc.util.intervals import Intervals

__all__ = ["Progress", "performance", "ranges"]

RANGE, PERFORMANCE = 111, 112
RANGES = re.compile(r"(?<![0-9])([0-9]{1,19})-([0-9]{1,19})(?![0-9])")
FACT = re.compile(r"\s*Stripe (Index|Bytes Transferred): {0,20}([0-9]{1,19})\s*", re.ASCII)
MOST_STRIPES = 10_000
MOST_GAPS = 10_000
"""Maximum number of separate ranges of one copy that a sink may report."""


def ranges(reply: Reply) -> list[tuple[int, int]]:
    """Return the ranges [start, end) of a 111 reply.

    >>> ranges(Reply(111, ("Range Marker 0-10,20-30",)))
    [(0, 10), (20, 30)]
    """
    return [(int(start), int(end)) for start, end in RANGES.findall(" ".join(reply.lines))]


def performance(reply: Reply) -> tuple[int, int] | None:
    """Return a stripe's number and its bytes from a 112 reply.

    >>> performance(Reply(112, ("Perf Marker", "Stripe Index: 1", "Stripe Bytes Transferred: 12", "End.")))
    (1, 12)
    """
    facts = {found[1]: found[2] for line in reply.lines if (found := FACT.fullmatch(line))}
    count = facts.get("Bytes Transferred")
    return None if count is None else (int(facts.get("Index", 0)), int(count))


class Progress:
    """The progress of one transfer, from its markers.

    >>> progress = Progress()
    >>> progress.hear(Reply(111, ("Range Marker 0-10",))), progress.hear(Reply(111, ("Range Marker 5-30",)))
    ([(0, 10)], [(10, 30)])
    >>> progress.bytes
    30
    """

    def __init__(self) -> None:
        self.stored = Intervals()
        self._stripes: dict[int, int] = {}
        self.moved = False
        """Whether the last marker reported new bytes."""

    @property
    def reported(self) -> bool:
        """Return whether any marker has come."""
        return bool(self._stripes or self.stored)

    @property
    def bytes(self) -> int:
        """The bytes received; exact after the last marker."""
        return self.stored.total or sum(self._stripes.values())

    def hear(self, reply: Reply) -> list[tuple[int, int]]:
        """Process a preliminary reply; return the ranges that are newly on disk."""
        self.moved = False
        if reply.code == PERFORMANCE and (marker := performance(reply)):
            stripe, count = marker
            if stripe not in self._stripes and len(self._stripes) >= MOST_STRIPES:
                raise _too_much(f"markers of more than {MOST_STRIPES} stripes")
            self.moved = count > self._stripes.get(stripe, 0)
            self._stripes[stripe] = count
        if reply.code != RANGE:
            return []
        news = []
        for start, end in ranges(reply):
            news += self.stored.gaps(start, end)
            self.stored.add(start, end)
        if len(self.stored) > MOST_GAPS:
            raise _too_much(f"markers of more than {MOST_GAPS} ranges")
        self.moved = bool(news)
        return news


def _too_much(what: str) -> LimitExceeded:
    return LimitExceeded(f"the server sends {what}", "use another server, or tell its admin")
