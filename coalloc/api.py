"""The public API and composition root: download, plan, probe, history. Connects all parts; decides nothing."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING

from coalloc.broker_client import Broker, DatasetEntry, FoundReplicas, PlannedFile
from coalloc.broker_client.imports import read_log, remember, remember_globus, report_globus
from coalloc.broker_client.submission import TaskFailed, TaskRequest, cancel, dry_run, submit, tasks, watch
from coalloc.collect.runtime.name_equality import held
from coalloc.collect.values import CollectReport, CollectRequest, CollectView
from coalloc.config import access, some_access
from coalloc.download.preview import preview
from coalloc.download.report import past_transfers
from coalloc.download.request import Engine, Request, named_files, ranked, sources_of
from coalloc.download.server_answers import Probe, planned_file, probe
from coalloc.download.servers import Storage, ThirdParty, copy, storage, third_party
from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.engine.base import Admission, Leads
from coalloc.engine.limits.server_slots import Slots
from coalloc.errors import CoallocError, UsageError
from coalloc.history.globus_tasks import tasks as globus_tasks
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import SourceSummary
from coalloc.model import Confirm, Estimate, Plan, ReplicaSet, Results, Snapshot, Stat, Strategy, TransferReport
from coalloc.partial_file import HeldHere, discard, held_in
from coalloc.resolve import bounds, refuse_collisions, target
from coalloc.resolve.inventory import Registered, register_below
from coalloc.safe_text import without_query
from coalloc.schedule.policies import make
from coalloc.util.addresses import AddressPolicy
from coalloc.util.dialer import DirectDialer
from coalloc.util.partial_names import private as private_name
from coalloc.verify import SUSPECTED

if TYPE_CHECKING:
    import httpx

    from coalloc.history.formats import TransferLog as TransferLog
    from coalloc.planner.documents.scenario import Scenario

__all__ = [
    "Admission",
    "CollectRequest",
    "Engine",
    "Leads",
    "PlannedFile",
    "Probe",
    "Registered",
    "Request",
    "Results",
    "Storage",
    "Strategy",
    "TaskFailed",
    "TaskRequest",
    "ThirdParty",
    "cancel",
    "collect",
    "copy",
    "datasets",
    "discard",
    "download",
    "dry_run",
    "globus_tasks",
    "held",
    "held_in",
    "history",
    "http_client",
    "metalink",
    "metalink_document",
    "metalink_files",
    "plan",
    "planned",
    "private_name",
    "probe",
    "read_log",
    "register",
    "register_directory",
    "remember",
    "remember_globus",
    "report_globus",
    "search",
    "storage",
    "submit",
    "tasks",
    "third_party",
    "watch",
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
    only after all pieces are. `confirm` is awaited when a file is complete, before it gets its name; if it raises, the
    file does not get the name.

    Raises a CoallocError. Cancelling stops cleanly and leaves a state that the next call resumes. After an error or a
    cancellation, `results` has the reports of the finished files and of the interrupted one.
    """
    broker = _broker(request)
    files = await named_files(request, broker)
    if expected:
        files = [found._replace(expected=expected, measured=frozenset(expected)) for found in files]
    results = results or Results()
    results.several = many = len(files) > 1
    if many:
        await refuse_collisions([found.file.name for found in files], HeldHere(request.output))
    for found in files:
        results.done.append(await _download(request, found, broker, watch, limits, confirm, results))
    return results.done


def _broker(request: Request) -> Broker | None:
    known = access(request.broker)
    return known and Broker(known)


async def _download(
    request: Request,
    found: FoundReplicas,
    broker: Broker | None,
    watch: Callable[[Snapshot], None] | None,
    limits: Mapping[str, Admission] | None,
    confirm: Confirm | None,
    results: Results[TransferReport],
) -> TransferReport:
    if request.staging is not None and (relayed := await _relayed(request, found, watch, results)):
        return relayed
    many = results.several
    past = TransferHistory.open()
    settings = DownloadSettings(
        policy=make(request.strategy, request.blocks, widens=request.streams is None),
        most=request.max_sources,
        keep_checksums=request.checksum != "none",
        within=request.within or bounds(request.output, many),
        replace=request.overwrite or not _is_foreign(found.file),
        beside=request.beside,
        confirm=confirm,
    )
    exact = request.output if request.within else None  # the existing target may become a directory at any moment
    where = exact or target(found.file.name, request.output, many, _is_foreign(found.file))
    ordered, estimates = ranked(found, past)
    counted = replace(request.options, slots=Slots.from_environment())
    sources = sources_of(request, ordered, counted, limits)
    fetch = Download(ordered, sources, estimates, where, settings, watch, seed=getrandbits(32))
    began = time.time()
    try:
        with results.of(fetch.report):
            report = await fetch.run()
    except CoallocError as error:
        await _remember(past, broker, request, found, fetch.report(), began, error)
        raise
    await _remember(past, broker, request, found, report, began)
    return report


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

    exact = request.output if request.within else None  # the existing target may become a directory at any moment
    where = exact or target(found.file.name, request.output, results.several, _is_foreign(found.file))
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
    wrong = [each for each in report.sources if each.outcome == "corrupt" and each.error != SUSPECTED]
    return [(found.dataset, without_query(each.url), str(each.error)) for each in wrong]


async def _remember(
    past: TransferHistory,
    broker: Broker | None,
    request: Request,
    found: FoundReplicas,
    report: TransferReport,
    began: float,
    error: CoallocError | None = None,
) -> None:
    """Add the transfer to this user's history, and report it to the broker."""
    transfers = past_transfers(report, began, request.streams)
    past.add(transfers)
    if broker:
        from coalloc.broker_client.outbox import decisions, send_results

        bad = [] if error else _bad(request, found, report)
        thing, candidates = found.dataset or found.file.name, report.sources[: len(found.file.replicas)]
        why = error.message if error else None
        decided = decisions(broker, thing, report._replace(sources=candidates), why, began)
        with suppress(asyncio.CancelledError):  # the user's work is done
            await send_results(broker, transfers, bad, decided=decided)


async def collect(
    wanted: CollectRequest,
    watch: Callable[[CollectView], None] | None = None,
    network: "Scenario | None" = None,
    results: Results[CollectReport] | None = None,
) -> CollectReport:
    """Collect many files from GridFTP servers to one place, over relays where the method chooses them.

    A file appears at its destination only when it is complete and compared with its origin; an existing file is not
    replaced, unless `wanted` says so. Cancelling stops cleanly, and leaves nothing at relays. After an error or a
    cancellation, `results` has the report so far.

    :param watch: receives views during the collection
    :param network: hosts that take part in addition to the named servers, and the links between them; missing values
        are taken from measurements. The host without a server is this machine. Without a network, every host is assumed
        to reach every other one, and missing measurements are guessed
    :raises CoallocError: when a file could not be collected
    """
    from coalloc.collect.composition import collect  # imported here because downloads need no methods and plans

    return await collect(wanted, watch, network, results or Results())


async def plan(request: Request) -> list[Plan]:
    """Return the plan of each file's transfer. Asks the servers for sizes, moves nothing."""
    return [(await planned_file(request, found))[0] for found in await named_files(request, _broker(request))]


async def metalink(request: Request) -> str:
    """Return a Metalink 4 document of the files: replicas that answer, the best first, with an agreed checksum.

    If a file has no known checksum, its servers are asked to compute one, for which they read the whole file.
    """
    files = await named_files(request, _broker(request))
    described = [(await planned_file(request, found, ask_checksum=True))[1] for found in files]
    return metalink_document(described, datetime.now(UTC))


def planned(file: ReplicaSet, estimates: Sequence[Estimate], strategy: Strategy = "adaptive") -> Plan:
    """Return the plan for a file of known size, assuming that all its servers answer; asks none of them.

    :param estimates: forecast of each replica, in their order
    """
    stat = Stat(file.size or 0)
    answers = dict.fromkeys(range(len(file.replicas)), stat)
    return preview(file, estimates, make(strategy), answers, file.checksums)


def metalink_files(document: bytes, where: str) -> list[ReplicaSet]:
    """Return the files that a Metalink 4 document describes; messages call it `where`. Raises a UsageError."""
    from coalloc.resolve.metalink import read

    return read(document, where)


def metalink_document(files: Sequence[ReplicaSet], published: datetime) -> str:
    """Return a Metalink 4 document of described files; `published` is an aware time."""
    from coalloc.resolve.metalink import write

    return write(files, published)


async def search(beginning: str, most: int = 100, broker: str | None = None) -> list[DatasetEntry]:
    """Return datasets of a broker whose names begin with `beginning`.

    :raises UsageError: if no broker is known
    """
    return await Broker(some_access(broker)).search(beginning, most)


async def datasets(names: Sequence[str], broker: str | None = None) -> list[FoundReplicas]:
    """Return the replicas of these datasets in a broker's catalogue, with forecasts.

    :raises UsageError: if no broker is known
    """
    return await Broker(some_access(broker)).resolve(names)


async def register(name: str, urls: Sequence[str], broker: str | None = None) -> tuple[ReplicaSet, int]:
    """Register replicas of a dataset at a broker; return the registered file and the number of new replicas.

    The servers are asked for the size, and for a checksum on which all agree. Raises the errors of `plan`, and a
    UsageError if no broker is known.
    """
    known = Broker(some_access(broker))
    request = Request(tuple(urls))
    found, *others = await named_files(request, None)
    if others:
        raise UsageError(f"{urls[0]} has several files", "register them one by one")
    _, file = await planned_file(request, found, ask_checksum=True)
    return file, await known.register(name, file)


async def register_directory(name: str, url: str, broker: str | None = None) -> Registered:
    """Register every file below a directory of a GridFTP server at a broker, with names below `name`.

    The server computes checksums where it can. Raises SourceErrors, and a UsageError if no broker is known.
    """
    return await register_below(Broker(some_access(broker)), name, url, partial(storage, url))


def http_client(url: str, policy: AddressPolicy, seconds: float) -> "httpx.AsyncClient":
    """Return a client for the server of a URL; it connects only to addresses that the policy allows; no redirects."""
    from coalloc.engine.http.transport import client

    return client(url, DirectDialer(policy), seconds, lambda _: None)


def history() -> list[SourceSummary]:
    """Return the results of this user's transfers at each source."""
    return TransferHistory.open().summary()
