"""Reports of transfers to the broker: sent at once if that takes at most a second, else stored and sent next time.

The report of a run is a file beside the history, written and then renamed. What the broker has accepted or refused is
taken out of it. It is removed when nothing is left, when it is a month old, and when there are too many.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

from coalloc.broker_client import Broker, BrokerRefuses
from coalloc.broker_client.decision import Document, decision, worth_reporting
from coalloc.errors import CoallocError
from coalloc.history.database import default_path
from coalloc.history.links import EVERYBODY, MeasuredLink
from coalloc.history.route_values import MeasuredRoute
from coalloc.history.values import PastTransfer, source_key
from coalloc.model.reports import TransferReport
from coalloc.safe_text import one_line

__all__ = ["decisions", "send_results"]

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Maximum seconds that a user waits for the broker, including name resolution, after the file is complete."""
AT_ONCE = 100
"""Reports in one request, the newest first."""
DECISIONS = 20
"""Reports whose decisions are sent in one request, as each may have thousands of ranges."""
OLDEST = 30 * 86_400.0
"""Seconds after which a report is useless."""
MOST = 1000
"""Most stored reports, for all brokers together; the oldest are removed first."""
ABANDONED = 3600.0
"""Seconds after which a file that was not renamed is removed, as the process that wrote it was killed."""
SUFFIX, UNFINISHED = ".report", ".new"
LONGEST = 500
"""Characters of a remark that the broker accepts."""

DOCUMENTS = ("observations", "decided", "routes")
Bad = tuple[str, str, str]
"""A replica with wrong bytes: dataset, URL, and the error."""


@dataclass
class PendingReport:
    """A report for a broker; `path` is the file that stores it, None if it is not stored."""

    observations: list[dict[str, Any]] = field(default_factory=list)
    decided: list[Document] = field(default_factory=list)
    routes: list[Document] = field(default_factory=list)
    bad: list[Bad] = field(default_factory=list)
    path: Path | None = None

    @property
    def content(self) -> dict[str, list[Any]]:
        """The parts that the broker has neither accepted nor refused."""
        parts: dict[str, list[Any]] = {name: getattr(self, name) for name in (*DOCUMENTS, "bad")}
        return {name: part for name, part in parts.items() if part}

    @property
    def size(self) -> int:
        """The number of documents and marks in it."""
        return sum(map(len, self.content.values()))

    @classmethod
    def of(cls, content: Mapping[str, Any], path: Path) -> "PendingReport":
        """Return a stored report. :raises ValueError, TypeError: if it is invalid"""
        bad = [(dataset, url, error) for dataset, url, error in content.get("bad", ())]
        lists = {name: [dict(each) for each in content.get(name, ())] for name in DOCUMENTS}
        return cls(**lists, bad=bad, path=path)


def decisions(broker: Broker, thing: str, report: TransferReport, error: str | None, began: float) -> list[Document]:
    """Return a list with the transfer's decision for the broker.

    It is empty if the decision is not worth a report, or if a source is not a server.

    :param thing: the dataset, or the file's name
    :param error: the reason of the failure, if it failed
    """
    servers = all("://" in source.url and not source_key(source.url).endswith("//") for source in report.sources)
    if not (report.sources and servers and worth_reporting(report)):
        return []
    return [decision(report, error, began, uuid4().hex, "download", thing, broker.access.site or "")]


async def send_results(
    broker: Broker,
    transfers: Sequence[PastTransfer],
    bad: Sequence[Bad] = (),
    measured: Sequence[MeasuredLink] = (),
    decided: Sequence[Document] = (),
    routes: Sequence[MeasuredRoute] = (),
) -> None:
    """Send these results and earlier unsent reports to the broker, in at most a second. Failures raise no error.

    Unsent reports are stored for next time, unless the user keeps no history.
    """
    observations = [_observation(broker, each) for each in transfers if _is_of_use(each)]
    observations += [_pair(each) for each in measured if EVERYBODY not in (each.source, each.sink)]
    marked = [(dataset, url, _remark(reason)) for dataset, url, reason in bad]
    sent_routes = [_route(each) for each in routes if _is_plain(each.host)]
    new = PendingReport(observations, list(decided), sent_routes, marked)
    try:
        folder = _folder()
        if folder and new.content:
            _store(folder, broker, new)
        waiting = [new] if new.content and not new.path else []
        if folder:
            waiting += _waiting(folder, broker)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await _send(broker, waiting)
    except CoallocError as error:
        log.info("failed to report to the broker: %s", error.message)
    except Exception as error:  # the user's file is complete: an error here must not change that
        log.warning("failed to report to the broker: %s: %s", type(error).__name__, error)


async def _send(broker: Broker, reports: Sequence[PendingReport]) -> None:
    """Send all reports, the parts that matter most first; store what is left of each, also if this is cancelled."""
    whole = [(report, report.size) for report in reports]
    try:
        await _send_part(broker.report, [report.observations for report in reports])
        decided = [report.decided for report in reports]
        for at in range(0, len(decided), DECISIONS):
            await _send_part(broker.decided, decided[at : at + DECISIONS])
        await _send_part(broker.measured, [report.routes for report in reports])
        for report in reports:
            while report.bad:
                with suppress(BrokerRefuses):
                    await broker.mark_bad(*report.bad[0])
                del report.bad[0]
    finally:
        for report, before in whole:
            if report.path and report.size < before:
                _store_rest(report)


async def _send_part(send: Callable[[list[Document]], Awaitable[object]], parts: Sequence[list[Document]]) -> None:
    """Send lists of documents in one request, and empty them.

    If the broker refuses it, send them one by one, so that only invalid ones are lost.
    """
    filled = [part for part in parts if part]
    try:
        if filled:
            await send([each for part in filled for each in part])
    except BrokerRefuses as error:
        if len(filled) > 1:
            for part in filled:
                await _send_part(send, [part])
            return
        log.warning("the broker refuses the report of an earlier transfer: %s", error.message)
    for part in filled:
        part.clear()


def _folder() -> Path | None:
    history = default_path()
    return history and history.with_name(f"{history.name}.outbox")


def _waiting(folder: Path, broker: Broker) -> list[PendingReport]:
    """Return the newest reports to this broker; remove old, unreadable and surplus ones."""
    now, mine = time.time(), _digest(broker)
    for path in folder.glob(f"*{UNFINISHED}"):
        with suppress(FileNotFoundError):  # another coget process has renamed it
            if now - path.stat().st_mtime > ABANDONED:
                path.unlink()
    stored: list[tuple[float, str, Path]] = []
    for path in folder.glob(f"*{SUFFIX}"):
        try:
            written_at, to, _ = path.name.split("-", 2)
            stored.append((float(written_at), to, path))
        except ValueError:
            _remove(path, "its name has no time")
    stored.sort(reverse=True)
    kept = [each for each in stored[:MOST] if now - each[0] <= OLDEST]
    for _, _, path in stored[len(kept) :]:
        log.info("removed a report for the broker that is too old, or one of too many: %s", path)
        path.unlink(missing_ok=True)
    newest = [path for _, to, path in kept if to == mine][:AT_ONCE]
    return [report for path in newest if (report := _read(path))]


def _read(path: Path) -> PendingReport | None:
    """Return a stored report; remove it and return None if it is invalid."""
    try:
        return PendingReport.of(json.loads(path.read_text()), path)
    except FileNotFoundError:  # another coget process has sent it
        return None
    except (ValueError, TypeError, AttributeError) as error:
        _remove(path, f"{type(error).__name__}: {error}")
        return None


def _remove(path: Path, why: str) -> None:
    log.warning("removed an unusable report for the broker: %s: %s", path, why)
    path.unlink(missing_ok=True)


def _digest(broker: Broker) -> str:
    return blake2b(broker.access.url.encode(), digest_size=8).hexdigest()


def _store(folder: Path, broker: Broker, report: PendingReport) -> None:
    """Store a report, which gets its path then; it gets none if it cannot be stored."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)  # earlier versions gave others access
        path = folder / f"{time.time():017.3f}-{_digest(broker)}-{uuid4().hex}{SUFFIX}"
        _write(path, report)
    except OSError as error:
        log.info("failed to store the report for the broker: %s", error)
        return
    report.path = path


def _store_rest(report: PendingReport) -> None:
    """Store what is left of a report in its file; remove the file if nothing is left."""
    assert report.path is not None
    try:
        if not report.content:
            report.path.unlink(missing_ok=True)
        elif report.path.exists():  # otherwise another coget process has sent it
            _write(report.path, report)
    except OSError as error:  # all of it is sent again
        log.info("failed to store the report for the broker: %s", error)


def _write(path: Path, report: PendingReport) -> None:
    """Write a report atomically."""
    temporary = path.with_name(f"{uuid4().hex}{UNFINISHED}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:  # error messages and URLs can contain keys
        json.dump(report.content, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)


def _is_of_use(transfer: PastTransfer) -> bool:
    """Return whether a broker can use a transfer: its source was used for a while, and is a server."""
    return (
        transfer.outcome != "unused" and transfer.end > transfer.start and not source_key(transfer.url).endswith("//")
    )


def _remark(text: str) -> str:
    return one_line(text, LONGEST)


def _observation(broker: Broker, transfer: PastTransfer) -> dict[str, Any]:
    return {
        "id": uuid4().hex,
        "source": source_key(transfer.url),
        **({"sink": broker.access.site} if broker.access.site else {}),
        "started": transfer.start,
        "ended": transfer.end,
        "bytes": transfer.bytes,
        "busy_seconds": transfer.busy_seconds,
        "setup_seconds": transfer.setup_seconds,
        "ranges": transfer.ranges,
        "streams": max(1, transfer.streams),
        "outcome": transfer.outcome,
        "error": _remark(transfer.error) if transfer.error else None,
    }


def _pair(measured: MeasuredLink) -> dict[str, Any]:
    return {
        "id": uuid4().hex,
        "source": measured.source,
        "sink": measured.sink,
        "started": measured.start,
        "ended": measured.end,
        "bytes": measured.bytes,
        "streams": measured.streams,
        "outcome": measured.outcome,
        "error": _remark(measured.error) if measured.error else None,
    }


def _route(measured: MeasuredRoute) -> Document:
    host = f"[{measured.host}]" if ":" in measured.host else measured.host.rstrip(".")
    return {"scheme": measured.scheme, "host": host, "ended": measured.ended, **measured.use._asdict()}


def _is_plain(host: str) -> bool:
    """Return whether a broker accepts this host: no name in Unicode, and no address with a zone."""
    return host.isascii() and "%" not in host
