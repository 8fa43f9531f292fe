"""Downloads, and what is done before and after each: names become replicas, results become history."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING

from coalloc.config import access
from coalloc.download.report import measured_routes, past_transfers
from coalloc.download.request import Request, named_files, ranked, several_files
from coalloc.download.time_limit import time_limit
from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.download.transfer import Transfer
from coalloc.engine import open_sources
from coalloc.engine.base import Admission
from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.limits.server_slots import Slots
from coalloc.errors import CoallocError
from coalloc.history.finishes import FinishHistory
from coalloc.history.transfers import TransferHistory
from coalloc.model.checksums import Confirm
from coalloc.model.forecasts import Estimate, FoundReplicas
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import Results, TransferReport
from coalloc.partial_file import HeldHere
from coalloc.resolve import bounds, refuse_collisions, target
from coalloc.safe_text import without_query
from coalloc.schedule.policies import make

if TYPE_CHECKING:
    from coalloc.broker_client import Broker
    from coalloc.broker_client.guarantee import ReservedFinish
    from coalloc.collect.values import CollectReport
    from coalloc.download.small_files import SmallFiles
    from coalloc.history.fetched import FetchedGroup

__all__ = [
    "broker_of",
    "download",
    "fetch_file",
    "held",
    "record_results",
    "reservation",
    "sending_traces",
    "with_guarantee",
    "with_traces",
]


async def download(
    request: Request,
    watch: Callable[[Snapshot], None] | None = None,
    expected: Mapping[str, Estimate] | None = None,
    limits: Mapping[str, Admission] | None = None,
    confirm: Confirm | None = None,
    results: Results[TransferReport] | None = None,
) -> list[TransferReport]:
    """Fetch every file that the request names; `watch` receives snapshots during the transfer.

    `expected` are forecasts for replicas, by URL, which replace those of this user's history. A replica in `limits`, by
    URL, is asked for a piece only after the piece is admitted; for a whole file, which is all that some servers send,
    only after all pieces are admitted. `confirm` is awaited when a file is complete, before it gets its name; if it
    raises, the file does not get the name.

    Raises a CoallocError. Cancelling stops cleanly and leaves a state that the next call resumes. After an error or a
    cancellation, `results` has the reports of the finished files and of the interrupted one.
    """
    with closing(FirstAnswers()) as first:
        request = request.begun._replace(first=first)
        return await _downloads(request, watch, expected, limits, confirm, results or Results())


async def _downloads(
    request: Request,
    watch: Callable[[Snapshot], None] | None,
    expected: Mapping[str, Estimate] | None,
    limits: Mapping[str, Admission] | None,
    confirm: Confirm | None,
    results: Results[TransferReport],
) -> list[TransferReport]:
    request = request._replace(output=request.path)  # an error before anything is asked
    broker = broker_of(request)
    files = await named_files(request, broker)
    request = with_traces(request, [found.file for found in files])
    if request.dialers:
        await request.dialers.learn(files)
    if expected:
        files = [found._replace(expected=expected, measured=frozenset(expected)) for found in files]
    results.several = many = len(files) > 1
    if many and request.deadline:
        raise several_files()
    if many:
        await refuse_collisions([found.file.name for found in files], HeldHere(request.path))
    async with sending_traces(request):
        for found in files:
            past = TransferHistory.open()
            results.done.append(await fetch_file(request, found, broker, watch, results, past, limits, confirm))
    return results.done


def with_traces(request: Request, files: Sequence[ReplicaSet]) -> Request:
    """Return the request, with a collector of traces if the catalogue of a file counts downloads."""
    if all(file.trace is None for file in files):
        return request
    from coalloc.resolve.catalogues.rucio_traces import RucioTraces

    return request._replace(traces=RucioTraces())


@asynccontextmanager
async def sending_traces(request: Request) -> AsyncIterator[None]:
    """Send the traces at the end of the block, also if it failed; not if it was cancelled."""
    try:
        yield
    except CoallocError:
        await _send_traces(request)
        raise
    await _send_traces(request)


async def _send_traces(request: Request) -> None:
    if request.traces:
        with suppress(asyncio.CancelledError):  # an interrupt must not hide the result of the transfer
            await request.traces.flush(request.options.dialers)


def broker_of(request: Request) -> "Broker | None":
    """Return the broker that a request is about; None if there is none."""
    known = access(request.broker)
    if known is None:
        return None
    from coalloc.broker_client import Broker  # imported here because many users have no broker

    return Broker(known)


async def fetch_file(
    request: Request,
    found: FoundReplicas,
    broker: "Broker | None",
    watch: Callable[[Snapshot], None] | None,
    results: Results[TransferReport],
    past: TransferHistory,
    limits: Mapping[str, Admission] | None = None,
    confirm: Confirm | None = None,
    fetched: "FetchedGroup | None" = None,
    small: "SmallFiles | None" = None,
) -> TransferReport:
    """Fetch one file. If `results.several`, its name is a path below the request's output.

    :param past: the history that gives the estimates, and gets the results
    :param fetched: the files that are known to be whole, to which this one is added
    :param small: the way for small files, which is tried first
    :raises CoallocError: as `download`
    """
    if request.staging is not None and (relayed := await _relayed(request, found, watch, results)):
        return relayed
    many = results.several
    settings = DownloadSettings(
        policy=make(request.strategy, request.blocks, widens=request.streams is None),
        most=request.max_sources,
        keep_checksums=request.checksum != "none",
        within=request.within or bounds(request.path, many),
        replace=request.overwrite or not (request.no_clobber or _is_foreign(found.file)),
        beside=request.beside,
        confirm=confirm,
        deadline=request.deadline,
        past_errors=FinishHistory(past.path).errors,
        tries=request.retries + 1,
    )
    exact = request.path if request.within else None  # the existing target may become a directory at any moment
    where = exact or target(found.file.name, request.path, many, _is_foreign(found.file))
    if fetched:
        settings = settings._replace(is_whole=partial(fetched.files.is_whole, where))
    began = time.time()
    if small and request.engine == "auto" and request.max_seconds is None:  # it would not keep what has arrived by then
        done = await small.fetch(found.file, request.options, where, settings)
        if done:
            if fetched and done.written:
                fetched.add(where, done.written, {found.file.replicas[0].url: done.version})
            await record_results(past, broker, request, found, done.report, began)
            return done.report
    ordered, estimates = ranked(found, past)
    counted = replace(request.options, slots=Slots.from_environment())
    sources = open_sources(ordered, request.engine, counted, limits)
    reserved = reservation(broker, request, ordered)
    if reserved:
        settings = settings._replace(admit=reserved.admit)
    fetch = Download(ordered, sources, estimates, where, settings, watch, seed=getrandbits(32))
    try:
        with results.of(fetch.report):
            async with held(reserved, fetch), time_limit(request.max_seconds, where):
                report = await fetch.run()
    except CoallocError as error:
        await record_results(past, broker, request, found, fetch.report(), began, error)
        raise
    report = with_guarantee(report, reserved)
    if fetched and fetch.written:
        fetched.add(where, fetch.written, fetch.versions)
    if not request.admission:
        FinishHistory(past.path).add(fetch.finish_errors, time.time())
    await record_results(past, broker, request, found, report, began)
    return report


def reservation(broker: "Broker | None", request: Request, file: ReplicaSet) -> "ReservedFinish | None":
    """Return what asks a broker to promise the deadline of a request; None without a broker or a deadline."""
    if not (broker and request.deadline):
        return None
    from coalloc.broker_client.guarantee import ReservedFinish

    most = 1 if request.strategy == "single" else request.max_sources
    return ReservedFinish(broker.access, request.deadline, file.name, most)


def held(reserved: "ReservedFinish | None", fetch: Transfer) -> AbstractAsyncContextManager[None]:
    """Return a context that keeps a broker's promise open, if there is one."""
    return reserved.held(fetch.snapshot) if reserved else nullcontext()


def with_guarantee(report: TransferReport, reserved: "ReservedFinish | None") -> TransferReport:
    """Return the report with the number of the broker's promise."""
    if not (reserved and report.deadline):
        return report
    deadline = report.deadline._replace(guarantee=reserved.number, is_over=reserved.is_over)
    return report._replace(deadline=deadline)


def _is_foreign(file: ReplicaSet) -> bool:
    """Return whether the file's name does not come from the user."""
    return file.origin.kind != "user"


async def _relayed(
    request: Request,
    found: FoundReplicas,
    watch: Callable[[Snapshot], None] | None,
    results: Results[TransferReport],
) -> TransferReport | None:
    """Fetch a file over relays if the plan says that this is faster; else return None."""
    from coalloc.collect.composition import fetch_over  # imported here because few downloads need plans
    from coalloc.collect.single_file import report, snapshot

    exact = request.path if request.within else None  # the existing target may become a directory at any moment
    where = exact or target(found.file.name, request.path, results.several, _is_foreign(found.file))
    show = (lambda view: watch(snapshot(view, where.name))) if watch else None
    relays, given = request.staging or (), found.file.checksums
    collecting: Results[CollectReport] = Results()
    try:
        collected = await fetch_over(found.file, where, relays, request.options, show, request.overwrite, collecting)
    finally:
        if collecting.unfinished:
            results.unfinished = report(collecting.unfinished, given)
    return report(collected, given) if collected else None


def _bad(request: Request, found: FoundReplicas, report: TransferReport) -> list[tuple[str, str, str]]:
    """Return the replicas that contradict the broker's checksum of their dataset; leave out merely suspected ones."""
    if not (found.dataset and report.verified) or request.expected:
        return []
    return [(found.dataset, without_query(each.url), str(each.error)) for each in report.contradicted]


async def record_results(
    past: TransferHistory,
    broker: "Broker | None",
    request: Request,
    found: FoundReplicas,
    report: TransferReport,
    began: float,
    error: CoallocError | None = None,
) -> None:
    """Add the transfer to this user's history, and report it to the broker."""
    transfers = past_transfers(report, began, request.streams)
    past.add(transfers)
    if request.traces:
        request.traces.add(found.file, report, began, error)
    if routes := measured_routes(report, began):
        from coalloc.history.routes import RouteHistory  # imported here because few users have depots

        RouteHistory(past.path).add(routes)
    if broker:
        from coalloc.broker_client.outbox import decisions, send_results

        bad = [] if error else _bad(request, found, report)
        thing, candidates = found.dataset or found.file.name, report.sources[: len(found.file.replicas)]
        why = error.message if error else None
        decided = [] if request.admission else decisions(broker, thing, report._replace(sources=candidates), why, began)
        with suppress(asyncio.CancelledError):  # the user's work is done
            await send_results(broker, transfers, bad, decided=decided, routes=routes)
