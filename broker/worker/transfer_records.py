"""Records of the transfers of tasks for the recorder: arrived bytes, decisions and observations.

An invalid decision is logged and never ends a transfer. Forecasts also use the observations of the broker's own
transfers, including those that a collection's rate slowed down, since the limit will slow down later ones, too.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple, Self

import structlog
from pydantic import ValidationError

from broker.models.decisions import Made, ReportedDecision
from broker.models.history import FASTEST, Observed
from broker.models.tasks import Work
from broker.services.collections.trees import Naming, called, named
from broker.worker.recorder import Recorder
from coalloc.broker_client.decision import decision, worth_reporting
from coalloc.errors import CoallocError
from coalloc.model.progress import Snapshot
from coalloc.model.reports import Results, SourceReport, TransferReport
from coalloc.util.intervals import Intervals

__all__ = ["ArrivingBytes", "Move", "TransferDecision", "of_batch", "of_sources"]

TEXTS = ("url", "error", "rationale", "reason")
"""Fields of a decision that may contain a file's location."""
NETWORK_BOUND = 8 << 20
"""Mean size of files in bytes from which the network, not the number of files, determines the duration."""
log = structlog.get_logger("broker.worker")


class TransferDecision(NamedTuple):
    """The data for a decision's record, collected while the transfer runs.

    :param kind: download or copy
    :param owner_and_site: the task's owner, and the destination's site
    :param namings: namings of the task's collections, which replace servers' addresses by names that users know
    """

    recorder: Recorder
    work: Work
    kind: str
    thing: str
    owner_and_site: tuple[str, str]
    namings: Sequence[Naming]
    began: float
    results: Results[TransferReport]

    @classmethod
    @contextmanager
    def of(
        cls,
        recorder: Recorder,
        work: Work,
        kind: str,
        thing: str,
        owner_and_site: tuple[str, str],
        namings: Sequence[Naming],
    ) -> Iterator["TransferDecision"]:
        """Yield the decision, whose `results` the transfer fills. Record it if the transfer fails in the block.

        After success, call `came`.
        """
        deciding = cls(recorder, work, kind, thing, owner_and_site, namings, time.time(), Results())
        try:
            with called(*namings):
                yield deciding
        except CoallocError as error:
            if deciding.results.unfinished:
                deciding.came(deciding.results.unfinished, error.message)
            raise

    def came(self, report: TransferReport, error: str | None = None) -> None:
        """Record the outcome of the transfer."""
        if not worth_reporting(report):
            return
        owner, site = self.owner_and_site
        key = f"task.{self.work.task_id}.{self.work.id}.{self.work.leases}"
        document = decision(report, error, self.began, key, self.kind, self.thing, site)
        for part in (document, *document["sources"]):
            part |= {name: named(part[name], self.namings) for name in TEXTS if part.get(name)}
        try:
            decided = ReportedDecision.model_validate(document)
        except ValidationError as wrong:
            log.warning("failed to store a decision", error=str(wrong))
            return
        self.recorder.decide(owner, Made(decided, self.work.task_id, self.work.id))


class Move(NamedTuple):
    """A file that was moved as a whole, with its start and end in seconds since the epoch."""

    work: Work
    began: float
    ended: float

    @classmethod
    def of(cls, work: Work, began: float, report: TransferReport) -> Self | None:
        """Return the download of a file from one server; None if it did not move the whole file.

        :param began: beginning of the download
        """
        copies = [each for source in report.sources for each in source.copies if each.last_byte is not None]
        if report.there or report.resumed_bytes or not copies:
            return None
        first, last = min(each.asked for each in copies), max(each.last_byte or 0.0 for each in copies)
        return cls(work._replace(size=report.size), began + first, began + last)


def of_batch(source: str, sink: str, began: float, moves: Sequence[Move], streams: int) -> list[Observed]:
    """Return the observation of files from one server that were copied together; none if the files were too small.

    The busy time is the time in which at least one of these files was copied.

    :param source: URL of the server, without a path
    :param sink: the destination's site
    :param moves: copied files, without those that failed or were only compared
    """
    size, ended = sum(move.work.size for move in moves), time.time()
    busy = Intervals((round(move.began * 1e6), round(move.ended * 1e6)) for move in moves).total / 1e6
    if not moves or size < NETWORK_BOUND * len(moves) or ended <= began or not 0 < busy <= ended - began:
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


def of_sources(
    work: Work, sink: str, began: float, reports: Sequence[SourceReport], namings: Sequence[Naming]
) -> list[Observed]:
    """Return one observation of a file for each source with a measured time, or that delivered nothing.

    :param namings: namings of the task's collections, which replace servers' addresses in errors
    """
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
            error=report.error and named(report.error, namings)[:500],
        )
        for i, report in enumerate(reports)
        if report.outcome != "unused" and (not report.bytes or _is_measured(report))
    ]


def _is_measured(report: SourceReport) -> bool:
    """Return whether bytes arrived at more than one time; servers report progress only every few seconds."""
    moments = [(each.first_byte, each.last_byte) for each in report.copies if each.last_byte is not None]
    return any(first != last for first, last in moments) and report.bytes <= FASTEST * report.seconds


class ArrivingBytes:
    """The counter of the bytes of one file that arrive."""

    def __init__(self, task: str, recorder: Recorder) -> None:
        self._task = task
        self._recorder = recorder
        self._counted = 0

    def watch(self, snapshot: Snapshot) -> None:
        """Count the bytes that are new in a progress report."""
        self._count(snapshot.done_bytes)

    def whole(self, size: int) -> None:
        """Count all bytes that were not counted before."""
        self._count(size)

    def _count(self, done: int) -> None:
        if done > self._counted:
            self._recorder.moved(self._task, done - self._counted)
            self._counted = done
