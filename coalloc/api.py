"""The public API and composition root: download, plan, probe, history. Wires all rooms; decides nothing."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from random import getrandbits
from typing import TYPE_CHECKING, NamedTuple

from coalloc.addresses import AddressPolicy
from coalloc.agreement import Agreement, unusable
from coalloc.brokerclient import Broker, Dataset, Found, PlannedFile
from coalloc.collection import CollectionReport, CollectionView, Wanted
from coalloc.config import access, some_access
from coalloc.dialer import DirectDialer
from coalloc.download import Download, Wishes
from coalloc.engine import open_source
from coalloc.engine.base import Admission, Leads, Source
from coalloc.engine.places import PROCESSES
from coalloc.engine.slots import Slots
from coalloc.errors import CoallocError, NoFreeConnection, SourceError, UsageError
from coalloc.globus import tasks as globus_tasks
from coalloc.handover import Handover, cancel, dry_run, submit, tasks, watch
from coalloc.history import History, SourceSummary
from coalloc.imports import read_log, remember, remember_globus, report_globus
from coalloc.inventory import Registered, register_below
from coalloc.model import Confirm, Estimate, Plan, ReplicaSet, Snapshot, Stat, TransferReport
from coalloc.partial import private as private_name
from coalloc.preview import preview
from coalloc.report import past_transfers
from coalloc.request import Engine, Request, Strategy, named_files, ranked, sources_of
from coalloc.resolve import bounds, refuse_collisions, target
from coalloc.schedule.policies import make
from coalloc.servers import Storage, ThirdParty, copy, storage, third_party
from coalloc.sink import HeldHere, discard, held_in
from coalloc.staging.held import held
from coalloc.urls import redact, without_query
from coalloc.verify import SUSPECTED, Jury, agreed_checksum

if TYPE_CHECKING:
    import httpx

    from coalloc.logs import Log as Log
    from coalloc.planner.scenario import Scenario

__all__ = [
    "Admission",
    "Engine",
    "Handover",
    "Leads",
    "PlannedFile",
    "Probe",
    "Registered",
    "Request",
    "Storage",
    "Strategy",
    "ThirdParty",
    "Wanted",
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


class Probe(NamedTuple):
    """Whether a server answers, in how many seconds, and what it says of the file."""

    url: str
    ok: bool
    seconds: float
    size: int | None = None
    features: tuple[str, ...] = ()
    error: SourceError | None = None


async def download(
    request: Request,
    watch: Callable[[Snapshot], None] | None = None,
    expected: Mapping[str, Estimate] | None = None,
    limits: Mapping[str, Admission] | None = None,
    confirm: Confirm | None = None,
) -> list[TransferReport]:
    """Fetch every file that the request names; `watch` is shown snapshots as the transfer goes.

    `expected` is what is known of replicas, by URL, where that is more than this user's history. Of those that have
    `limits`, by URL, no piece is asked for before there is leave; whoever sends only the whole, when there is for that.
    `confirm` is awaited when a file is whole, before it gets its name, which it does not get if that fails.
    Raises a CoallocError; with several files, its `done` has the reports of those before. Cancelling stops cleanly
    and leaves a state that the next call resumes; the CancelledError has `report` and `done` as its arguments.
    """
    broker = _broker(request)
    files = await named_files(request, broker)
    if expected:
        files = [found._replace(expected=expected, measured=frozenset(expected)) for found in files]
    many = len(files) > 1
    if many:
        await refuse_collisions([found.file.name for found in files], HeldHere(request.output))
    done: list[TransferReport] = []
    for found in files:
        try:
            done.append(await _download(request, found, many, broker, watch, limits, confirm))
        except CoallocError as error:
            error.done = done if many else None
            raise
        except asyncio.CancelledError as stop:
            stop.args = (next(iter(stop.args), None), done if many else None)
            raise
    return done


def _broker(request: Request) -> Broker | None:
    known = access(request.broker)
    return known and Broker(known)


async def _download(
    request: Request,
    found: Found,
    many: bool,
    broker: Broker | None,
    watch: Callable[[Snapshot], None] | None,
    limits: Mapping[str, Admission] | None,
    confirm: Confirm | None,
) -> TransferReport:
    if request.staging is not None and (relayed := await _relayed(request, found, many, watch)):
        return relayed
    past = History.open()
    wishes = Wishes(
        policy=make(request.strategy, request.blocks, widens=request.streams is None),
        most=request.max_sources,
        keep_checksums=request.checksum != "none",
        within=request.within or bounds(request.output, many),
        replace=request.overwrite or not _is_foreign(found.file),
        beside=request.beside,
        confirm=confirm,
    )
    exact = request.output if request.within else None  # what is there may become a directory at any moment
    where = exact or target(found.file.name, request.output, many, _is_foreign(found.file))
    ordered, estimates = ranked(found, past)
    counted = replace(request.options, slots=Slots.from_environment())
    sources = sources_of(request, ordered, counted, limits)
    fetch = Download(ordered, sources, estimates, where, wishes, watch, seed=getrandbits(32))
    began = time.time()
    try:
        report = await fetch.run()
    except CoallocError as error:
        if isinstance(error.report, TransferReport):
            await _remember(past, broker, request, found, error.report, began, error)
        raise
    await _remember(past, broker, request, found, report, began)
    return report


def _is_foreign(file: ReplicaSet) -> bool:
    """Whether somebody else than the user named the file."""
    return file.origin.kind != "user"


async def _relayed(
    request: Request, found: Found, many: bool, watch: Callable[[Snapshot], None] | None
) -> TransferReport | None:
    """Fetch a file over other servers, if the plan says that this pays."""
    from coalloc.collecting import fetch_over  # few downloads have a use for plans
    from coalloc.staging.relayed import report, snapshot

    exact = request.output if request.within else None  # what is there may become a directory at any moment
    where = exact or target(found.file.name, request.output, many, _is_foreign(found.file))
    told = (lambda view: watch(snapshot(view, where.name))) if watch else None
    try:
        collected = await fetch_over(found.file, where, request.staging or (), request.options, told, request.overwrite)
    except CoallocError as error:
        if isinstance(error.report, CollectionReport):
            error.report = report(error.report, found.file.checksums)
        raise
    except asyncio.CancelledError as stop:
        given = found.file.checksums
        stop.args = tuple(report(known, given) if isinstance(known, CollectionReport) else known for known in stop.args)
        raise
    return report(collected, found.file.checksums) if collected else None


def _bad(request: Request, found: Found, report: TransferReport) -> list[tuple[str, str, str]]:
    """Replicas of a broker's dataset that are wrong beyond doubt: by its own checksum, and not under suspicion only."""
    if not (found.dataset and report.verified) or request.expected:
        return []
    wrong = [each for each in report.sources if each.outcome == "corrupt" and each.error != SUSPECTED]
    return [(found.dataset, without_query(each.url), str(each.error)) for each in wrong]


async def _remember(
    past: History,
    broker: Broker | None,
    request: Request,
    found: Found,
    report: TransferReport,
    began: float,
    error: CoallocError | None = None,
) -> None:
    """For this user's next transfer, and for everybody's."""
    transfers = past_transfers(report, began, request.streams)
    past.add(transfers)
    if broker:
        from coalloc.outbox import decisions, tell

        bad = [] if error else _bad(request, found, report)
        thing, candidates = found.dataset or found.file.name, report.sources[: len(found.file.replicas)]
        why = error.message if error else None
        decided = decisions(broker, thing, report._replace(sources=candidates), why, began)
        with suppress(asyncio.CancelledError):  # all is done that the user wanted
            await tell(broker, transfers, bad, decided=decided)


async def collect(
    wanted: Wanted,
    watch: Callable[[CollectionView], None] | None = None,
    network: "Scenario | None" = None,
) -> CollectionReport:
    """Collect many files from GridFTP servers to one place, over other hosts where a method sends them.

    Each is at its destination when it is whole and compared with its origin, or not at all; what is there already is
    left alone. Cancelling stops cleanly, and leaves nothing at servers in between; the CancelledError has the report as
    its argument.

    :param watch: is shown views as it goes
    :param network: which hosts take part beside those that are named, and what goes between them; what it leaves open
        is taken from what was measured. The host without a server is this machine. Without a network, every host is
        thought to reach every other one, and what was not measured is guessed
    :raises CoallocError: with what was known in its `report`
    """
    from coalloc.collecting import collect  # downloads have no use for methods and plans

    return await collect(wanted, watch, network)


async def plan(request: Request) -> list[Plan]:
    """Say how each file would be fetched. Asks the servers for sizes, moves nothing."""
    return [(await _plan(request, found))[0] for found in await named_files(request, _broker(request))]


async def metalink(request: Request) -> str:
    """A Metalink 4 document of the files: replicas that answer, the best first, with a checksum that all agree on.

    Where no checksum is known yet, the servers are asked to compute one, which takes them a read of the file.
    """
    files = await named_files(request, _broker(request))
    described = [(await _plan(request, found, ask_checksum=True))[1] for found in files]
    return metalink_document(described, datetime.now(UTC))


def planned(file: ReplicaSet, estimates: Sequence[Estimate], strategy: Strategy = "adaptive") -> Plan:
    """How a file of known size would be fetched if all its servers answer; asks none of them.

    :param estimates: what is expected of each replica, in their order
    """
    stat = Stat(file.size or 0)
    answers = dict.fromkeys(range(len(file.replicas)), stat)
    return preview(file, estimates, make(strategy), answers, file.checksums)


def metalink_files(document: bytes, where: str) -> list[ReplicaSet]:
    """The files that a Metalink 4 document describes; `where` is what messages call it. Raises a UsageError."""
    from coalloc.resolve.metalink import read

    return read(document, where)


def metalink_document(files: Sequence[ReplicaSet], published: datetime) -> str:
    """A Metalink 4 document of files that are described already; `published` is an aware time."""
    from coalloc.resolve.metalink import write

    return write(files, published)


async def _plan(request: Request, found: Found, ask_checksum: bool = False) -> tuple[Plan, ReplicaSet]:
    """The plan, and what is known of the file now: the replicas that can be used in the order of the plan."""
    ordered, estimates = ranked(found, History.open())
    sources = sources_of(request, ordered, request.options)
    try:
        answers, agreement = await _answers(ordered, sources, keep=ask_checksum and len(sources) <= PROCESSES)
        known = [*ordered.checksums, *agreement.digests]
        if ask_checksum and not known:
            jury = Jury(sources, lambda source: isinstance(answers[source], Stat))
            known = await agreed_checksum(jury, agreement.size or 0)
    finally:
        await asyncio.gather(*(source.close() for source in sources))
    made = preview(ordered, estimates, make(request.strategy, request.blocks), answers, known)
    usable = [
        replica._replace(priority=share.priority)
        for replica, share in zip(ordered.replicas, made.shares, strict=False)  # those left out come last
        if share.error is None
    ]
    return made, ordered._replace(replicas=tuple(usable), size=made.size, checksums=made.checksums)


async def _answers(
    file: ReplicaSet, sources: Sequence[Source], keep: bool
) -> tuple[dict[int, Stat | SourceError], Agreement]:
    """What each server says; at least one says what can be used.

    :param keep: whether they are asked more soon, and keep their connections
    """
    agreement = Agreement(file)
    answers = dict(enumerate(await asyncio.gather(*(_stat(source, keep) for source in sources))))
    for i, answer in answers.items():
        try:
            if isinstance(answer, Stat):
                agreement.check(i, answer)
        except SourceError as error:
            answers[i] = error
    errors = {i: answer for i, answer in answers.items() if isinstance(answer, SourceError)}
    if len(errors) == len(sources):
        raise unusable([redact(source.url) for source in sources], errors)
    return answers, agreement


async def _stat(source: Source, keep: bool = False) -> Stat | SourceError:
    """What a server says, when there is a place to ask it; its connection is closed unless it is to be kept."""
    try:
        while True:
            try:
                return await source.open()
            except NoFreeConnection as error:
                await error.until_free()
    except SourceError as error:
        return error
    finally:
        if not keep:
            await source.close()


async def probe(urls: Sequence[str], engine: Engine = "auto", delegate: frozenset[str] = frozenset()) -> list[Probe]:
    """Whether each of these servers answers; `delegate` are hosts that may be given a limited proxy."""
    request = Request(tuple(urls), engine=engine, delegate=delegate)
    return list(await asyncio.gather(*(_probe(url, request) for url in urls)))


async def _probe(url: str, request: Request) -> Probe:
    source = open_source(url, request.engine, request.options)
    began = time.monotonic()
    try:
        answer = await _stat(source)
    finally:
        await source.close()
    seconds = time.monotonic() - began
    if isinstance(answer, SourceError):
        return Probe(redact(url), False, seconds, error=answer)
    features = () if answer.ranged else ("ignores ranges",)
    return Probe(redact(url), True, seconds, answer.size, features)


async def search(beginning: str, most: int = 100, broker: str | None = None) -> list[Dataset]:
    """Datasets of a broker whose names begin so. :raises UsageError: where no broker is known"""
    return await Broker(some_access(broker)).search(beginning, most)


async def datasets(names: Sequence[str], broker: str | None = None) -> list[Found]:
    """Where a broker knows these datasets to be, and what to expect. :raises UsageError: where no broker is known"""
    return await Broker(some_access(broker)).resolve(names)


async def register(name: str, urls: Sequence[str], broker: str | None = None) -> tuple[ReplicaSet, int]:
    """Tell a broker that these are replicas of a dataset; what was told, and how many of them were news.

    The servers are asked for the size, and for a checksum that all agree on. Raises what `plan` does, and a UsageError
    where no broker is known.
    """
    known = Broker(some_access(broker))
    request = Request(tuple(urls))
    found, *others = await named_files(request, None)
    if others:
        raise UsageError(f"{urls[0]} has several files", "register them one by one")
    _, file = await _plan(request, found, ask_checksum=True)
    return file, await known.register(name, file)


async def register_directory(name: str, url: str, broker: str | None = None) -> Registered:
    """Tell a broker of every file below a directory of a GridFTP server, named after it below `name`.

    The server computes checksums where it can. Raises SourceErrors, and a UsageError where no broker is known.
    """
    return await register_below(Broker(some_access(broker)), name, url, partial(storage, url))


def http_client(url: str, policy: AddressPolicy, seconds: float) -> "httpx.AsyncClient":
    """A client for the server of a URL that connects where this policy allows; it follows no redirects."""
    from coalloc.engine.http.transport import client

    return client(url, DirectDialer(policy), seconds, lambda _: None)


def history() -> list[SourceSummary]:
    """What this user's transfers achieved at each source."""
    return History.open().summary()
