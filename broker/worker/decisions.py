"""Decisions about which replicas served a file, on their way to the recorder; errors in them never end a transfer."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import structlog
from pydantic import ValidationError

from broker.models.decisions import Decided, Made
from broker.models.tasks import Work
from broker.services.collections.trees import Naming, called, named
from broker.worker.recorder import Recorder
from coalloc.broker_client.decision import decision, worth_telling
from coalloc.errors import CoallocError
from coalloc.model import Results, TransferReport

__all__ = ["TransferDecision"]

TEXTS = ("url", "error", "rationale", "reason")
"""Fields of a decision that may contain the location of a file."""
log = structlog.get_logger("broker.worker")


class TransferDecision(NamedTuple):
    """The decision of a transfer that is about to begin.

    :param kind: download or copy
    :param whose: the task's owner, and the destination's site
    :param namings: namings of the task's collections; errors and sources are recorded under the names that users know
    """

    recorder: Recorder
    work: Work
    kind: str
    thing: str
    whose: tuple[str, str]
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
        whose: tuple[str, str],
        namings: Sequence[Naming],
    ) -> Iterator["TransferDecision"]:
        """Yield the decision, whose `results` the transfer fills. A transfer that fails in the block is recorded.

        After success, call `came`.
        """
        deciding = cls(recorder, work, kind, thing, whose, namings, time.time(), Results())
        try:
            with called(*namings):
                yield deciding
        except CoallocError as error:
            if deciding.results.unfinished:
                deciding.came(deciding.results.unfinished, error.message)
            raise

    def came(self, report: TransferReport, error: str | None = None) -> None:
        """Record the outcome of the transfer."""
        if not worth_telling(report):
            return
        owner, site = self.whose
        key = f"task.{self.work.task_id}.{self.work.id}.{self.work.leases}"
        document = decision(report, error, self.began, key, self.kind, self.thing, site)
        for part in (document, *document["sources"]):
            part |= {name: named(part[name], self.namings) for name in TEXTS if part.get(name)}
        try:
            decided = Decided.model_validate(document)
        except ValidationError as wrong:
            log.warning("a decision could not be kept", error=str(wrong))
            return
        self.recorder.decide(owner, Made(decided, self.work.task_id, self.work.id))
