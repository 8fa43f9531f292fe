"""Reports of transfers to the broker: sent at once if that takes at most a second, else stored and sent next time.

A report is a file beside the history, written and then renamed. It is removed once the broker has accepted or refused
it, or when it is a month old.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
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
OLDEST = 30 * 86_400.0
"""Seconds after which a report is useless."""
SUFFIX = ".report"
LONGEST = 500
"""Characters of a remark that the broker accepts."""

Bad = tuple[str, str, str]
"""A replica with wrong bytes: dataset, URL, and the error."""


class PendingReport(NamedTuple):
    """A report for a broker; `path` is the file that stores it, None if it is not stored."""

    observations: list[dict[str, Any]]
    bad: list[Bad]
    decided: list[Document]
    routes: list[Document]
    path: Path | None = None

    @property
    def has_content(self) -> bool:
        """Return whether it has any content."""
        return bool(self.observations or self.bad or self.decided or self.routes)


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
    new = PendingReport(observations, marked, list(decided), [_route(each) for each in routes if _is_plain(each.host)])
    try:
        folder = _folder()
        if new.has_content:
            new = _keep(folder, broker, new) if folder else new
        waiting = [new] if new.path is None else []
        if folder:
            waiting += _waiting(folder, broker)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                await _send(broker, [report for report in waiting if report.has_content])
    except CoallocError as error:
        log.info("failed to report to the broker: %s", error.message)
    except Exception as error:  # the user's file is complete: an error here must not change that
        log.warning("failed to report to the broker: %s: %s", type(error).__name__, error)


async def _send(broker: Broker, reports: Sequence[PendingReport]) -> None:
    """Send all reports in one request; if the broker refuses it, one by one, so that only invalid reports are lost."""
    for report in reports:
        for each in report.bad:
            with suppress(BrokerRefuses):
                await broker.mark_bad(*each)
    observations = [each for report in reports for each in report.observations]
    try:
        if observations:
            await broker.report(observations)
    except BrokerRefuses as error:
        if len(reports) > 1:
            for report in reports:
                await _send(broker, [report._replace(bad=[])])
            return
        log.warning("the broker refuses the report of an earlier transfer: %s", error.message)
    for report in reports:
        await _offer("decision", broker.decided, report.decided)
        await _offer("measured routes", broker.measured, report.routes)
        if report.path:
            report.path.unlink(missing_ok=True)


async def _offer(what: str, send: Callable[[Sequence[Document]], Awaitable[None]], documents: list[Document]) -> None:
    """Send documents; log and drop those that the broker refuses."""
    try:
        if documents:
            await send(documents)
    except BrokerRefuses as error:
        log.info("the broker refuses the %s of an earlier transfer: %s", what, error.message)


def _folder() -> Path | None:
    history = default_path()
    return history and history.with_name(f"{history.name}.outbox")


def _waiting(folder: Path, broker: Broker) -> list[PendingReport]:
    """Return the newest reports to this broker; remove old and unreadable ones."""
    found: list[PendingReport] = []
    for path in sorted(folder.glob(f"*{SUFFIX}"), reverse=True):
        if len(found) == AT_ONCE:
            break
        try:
            content = json.loads(path.read_text())
            if time.time() - path.stat().st_mtime > OLDEST:
                raise ValueError("it is too old")
            if content["broker"] == broker.access.url:
                bad = [(a, b, c) for a, b, c in content["bad"]]
                decided, routes = list(content.get("decided", ())), list(content.get("routes", ()))
                found.append(PendingReport(list(content["observations"]), bad, decided, routes, path))
        except FileNotFoundError:  # another coget process has sent it
            continue
        except (ValueError, KeyError, TypeError) as error:
            log.warning("removed an unusable report for the broker: %s: %s", path, error)
            path.unlink(missing_ok=True)
    return found


def _keep(folder: Path, broker: Broker, report: PendingReport) -> PendingReport:
    """Store a report atomically, and return it with its file; unchanged if it cannot be stored."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)  # earlier versions gave others access
        path = folder / f"{time.time():017.3f}-{uuid4().hex}{SUFFIX}"
        temporary = path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "w") as file:  # error messages and URLs can contain keys
            content = {"observations": report.observations, "bad": report.bad, "decided": report.decided}
            content["routes"] = report.routes
            json.dump({"broker": broker.access.url, **content}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        log.info("failed to store the report for the broker: %s", error)
        return report
    return report._replace(path=path)


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
