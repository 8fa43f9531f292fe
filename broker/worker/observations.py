"""Observations of the transfers of tasks: forecasts learn from the broker's own work, too.

Transfers that were held back by a collection's rate count as well: that rate is to be expected as long as the limit is
in force.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from broker.models.history import FASTEST, Observed
from broker.models.tasks import Work
from coalloc.model import SourceReport
from coalloc.util.intervals import Intervals

__all__ = ["Move", "of_batch", "of_sources"]

TELLING = 8 << 20
"""Mean bytes of a file from which on the network, and not the number of files, decides the duration."""


class Move(NamedTuple):
    """A file that was moved as a whole, with the times of begin and end."""

    work: Work
    began: float
    ended: float


def of_batch(source: str, sink: str, began: float, moves: Sequence[Move], streams: int) -> list[Observed]:
    """Return the observation of files that were copied over one pair of sessions; none if the files were too small.

    Files that were only compared, or failed, do not count, nor does the time in which there were only such files.

    :param source: the server, as the history names it
    :param sink: the destination's site
    """
    size, ended = sum(move.work.size for move in moves), time.time()
    busy = Intervals((round(move.began * 1e6), round(move.ended * 1e6)) for move in moves).total / 1e6
    if not moves or size < TELLING * len(moves) or ended <= began or not 0 < busy <= ended - began:
        return []
    first = min((move.work for move in moves), key=lambda work: work.id)
    return [
        Observed(
            id=f"task.{first.task_id}.{first.id}.{first.leases}",
            source=source,
            sink=sink,
            started=began,
            ended=ended,
            bytes=size,
            busy_seconds=busy,
            ranges=len(moves),
            streams=streams,
        )
    ]


def of_sources(work: Work, sink: str, began: float, reports: Sequence[SourceReport]) -> list[Observed]:
    """Return an observation of one file for each source whose time was measured, or which delivered nothing."""
    ended = max(time.time(), began + 1e-3)
    return [
        Observed(
            id=f"task.{work.task_id}.{work.id}.{work.leases}.{i}",
            source="/".join(report.url.split("/")[:3]),
            sink=sink,
            started=began,
            ended=ended,
            bytes=report.bytes,
            busy_seconds=min(ended - began, report.seconds),
            setup_seconds=report.setup_seconds,
            ranges=report.ranges,
            streams=report.streams,
            outcome=report.outcome,
            error=report.error and report.error[:500],
        )
        for i, report in enumerate(reports)
        if report.outcome != "unused" and (not report.bytes or _is_measured(report))
    ]


def _is_measured(report: SourceReport) -> bool:
    """Return whether bytes arrived at more than one moment: servers report progress only every few seconds."""
    moments = [(each.first_byte, each.last_byte) for each in report.copies if each.last_byte is not None]
    return any(first != last for first, last in moments) and report.bytes <= FASTEST * report.seconds
