"""Downloads: names become replicas, and each file is fetched by the means that its request allows."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from functools import partial
from pathlib import Path
from random import getrandbits
from typing import TYPE_CHECKING

from coalloc.api.requested_transfer import RequestedTransfer
from coalloc.config import access
from coalloc.download.request import Request, named_files, ranked, several_files
from coalloc.download.time_limit import time_limit
from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.engine.base import Admission
from coalloc.engine.first_answers import FirstAnswers
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
from coalloc.schedule.policies import make
from coalloc.util.disk import in_thread

if TYPE_CHECKING:
    from coalloc.broker_client import Broker
    from coalloc.collect.values import CollectReport
    from coalloc.download.small_files import SmallFiles
    from coalloc.history.fetched import FetchedGroup

__all__ = [
    "broker_of",
    "download",
    "fetch_file",
    "sending_traces",
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
    where = _place(request, found.file, results.several)
    settings = _settings(request, found.file, results.several, past, confirm)
    if request.staging is not None and (
        relayed := await _relayed(request, found.file, where, settings, watch, results)
    ):
        return relayed
    if fetched:
        settings = settings._replace(is_whole=partial(fetched.files.is_whole, where))
    transfer = RequestedTransfer(request, found, broker, past)
    if small and request.engine == "auto" and request.max_seconds is None:  # it would not keep what has arrived by then
        done = await small.fetch(found.file, request.options, where, settings)
        if done:
            if fetched and done.written:
                fetched.add(where, done.written, {found.file.replicas[0].url: done.version})
            await transfer.record(done.report)
            return done.report
    file, estimates = ranked(found, past)
    sources = transfer.sources(file, limits)
    settings = settings._replace(admit=transfer.reserve(file))
    fetch = Download(file, sources, estimates, where, settings, watch, seed=getrandbits(32))
    report = await transfer.run(fetch, where, results)
    if fetched and fetch.written:
        fetched.add(where, fetch.written, fetch.versions)
    if not request.admission:
        FinishHistory(past.path).add(fetch.finish_errors, time.time())
    await transfer.record(report)
    return report


def _place(request: Request, file: ReplicaSet, several: bool) -> Path:
    """Return the path of a file on this machine."""
    if request.within and request.path:
        return request.path  # an existing target may become a directory at any moment
    return target(file.name, request.path, several, _is_foreign(file))


def _settings(
    request: Request, file: ReplicaSet, several: bool, past: TransferHistory, confirm: Confirm | None
) -> DownloadSettings:
    """Return the settings of a request for one of its files."""
    return DownloadSettings(
        policy=make(request.strategy, request.blocks, widens=request.streams is None),
        most=request.max_sources,
        keep_checksums=request.checksum != "none",
        within=request.within or bounds(request.path, several),
        replace=request.overwrite or not (request.no_clobber or _is_foreign(file)),
        beside=request.beside,
        confirm=confirm,
        deadline=request.deadline,
        past_errors=FinishHistory(past.path).errors,
        tries=request.retries + 1,
    )


def _is_foreign(file: ReplicaSet) -> bool:
    """Return whether the file's name does not come from the user."""
    return file.origin.kind != "user"


async def _relayed(
    request: Request,
    file: ReplicaSet,
    where: Path,
    settings: DownloadSettings,
    watch: Callable[[Snapshot], None] | None,
    results: Results[TransferReport],
) -> TransferReport | None:
    """Fetch a file over relays if the plan says that this is faster; else return None.

    Relays are not used without checksums, as they could alter bytes, and not if the path must not be replaced and
    exists, or the caller has to confirm the file: only a direct download compares or asks in these cases.
    """
    kept = not settings.replace and await in_thread(os.path.lexists, where)
    if kept or settings.confirm or not settings.keep_checksums:
        return None
    from coalloc.collect.composition import fetch_over  # imported here because few downloads need plans
    from coalloc.collect.single_file import FileDestination, report, snapshot

    show = (lambda view: watch(snapshot(view, where.name))) if watch else None
    landing = FileDestination(where, settings.replace, settings.within, settings.beside)
    collecting: Results[CollectReport] = Results()
    try:
        async with time_limit(request.max_seconds, where):
            collected = await fetch_over(file, landing, request.staging or (), request.options, show, collecting)
    finally:
        if collecting.unfinished:
            results.unfinished = report(collecting.unfinished, file)
    return report(collected, file) if collected else None
