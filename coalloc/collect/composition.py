"""Collect jobs from many servers to one place, with relays if the method uses them. Connects parts."""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from random import getrandbits
from uuid import uuid4

from coalloc.broker_client import Broker
from coalloc.broker_client.outbox import send_results
from coalloc.collect.decision import collected
from coalloc.collect.expected_network import guessed, inward, is_known, labelled
from coalloc.collect.methods import Method, make
from coalloc.collect.methods.guaranteed import Guaranteed
from coalloc.collect.runtime.collection import LOOK, CollectJob, Field, MethodChoice, error_of_files
from coalloc.collect.runtime.destination import Destination, ServerDestination
from coalloc.collect.runtime.local_destination import LocalDestination
from coalloc.collect.runtime.partial_name_records import PartialNames
from coalloc.collect.runtime.resolution import CollectServers, relays
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import StagingArea
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.collect.single_file import FileDestination
from coalloc.collect.values import HERE, CollectReport, CollectRequest, CollectView, GuaranteedClass, PairView
from coalloc.config import access, own_policy
from coalloc.credentials import Credentials
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse
from coalloc.engine.limits.rate import limited
from coalloc.engine.limits.server_slots import Slots
from coalloc.errors import CoallocError, UsageError
from coalloc.guarantees.checks import check_rate
from coalloc.history.links import MeasuredLink, Pairs
from coalloc.history.transfers import TransferHistory
from coalloc.history.values import PastTransfer
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.replicas import ReplicaSet
from coalloc.model.reports import Results
from coalloc.planner.documents.scenario import Scenario
from coalloc.planner.network import Demand, File, Network, joined
from coalloc.probing.survey import filled
from coalloc.resolve import resolve
from coalloc.resolve.catalogue_names import is_catalogued
from coalloc.safe_text import redact
from coalloc.util.dialer import DirectDialer

__all__ = ["collect", "default", "fetch_over"]

WORTH = 1.2
"""Minimum ratio of the direct transfer's time to the plan's time for a single file to be relayed."""


async def collect(
    wanted: CollectRequest,
    watch: Callable[[CollectView], None] | None,
    network: Scenario | None,
    results: Results[CollectReport],
) -> CollectReport:
    """Collect many files to one place; see `coalloc.api.collect`."""
    _check_guarantees(wanted)
    given = labelled(network) if network else None
    servers = CollectServers(_options(wanted), outward="://" in wanted.to)
    for url in wanted.via:
        servers.add(url, _folder(url))
    landing = _landing(wanted.to, servers, wanted.overwrite)
    showing = asyncio.create_task(_show_waits(servers, redact(wanted.to), watch)) if watch else None
    try:
        items = await servers.items(*await _named(wanted))
        if not items:
            raise error_of_files(servers.failed, len(servers.failed))
        await landing.prepare([item.name for item in items])
        _check_matches(wanted.guarantees, [item.name for item in items])
        for url in given.urls.values() if given else ():
            servers.add(url, _folder(url))
        known = await _known(given, [*servers.by_label], landing.label, wanted.broker)
    except BaseException:
        await servers.close()
        raise
    finally:
        if showing:
            showing.cancel()
    planned = guessed(known, [*servers.by_label], landing.label, given is not None, servers.senders)
    field = _field(servers, landing)

    def choose(demand: Demand) -> MethodChoice:
        method = _method(wanted, planned, demand)
        plan = _plan(planned, demand) if is_known(known, demand) else None
        return MethodChoice(method, *plan) if plan else MethodChoice(method)

    began = time.time()
    collection = CollectJob(
        items,
        field,
        redact(wanted.to),
        choose,
        watch,
        getrandbits(32),
        loops=servers.loops,
        unused=servers.unused,
        failed=servers.failed,
    )
    return await _run(collection, results, began, wanted.broker, servers.options.admission is None)


def _method(wanted: CollectRequest, network: Network, demand: Demand) -> Method:
    if wanted.guarantees:
        clock = time.time() - asyncio.get_running_loop().time()
        return Guaranteed(network, demand, wanted.guarantees, clock, getrandbits(32))
    return make(wanted.method or default(), network, demand, seed=getrandbits(32))


def _check_guarantees(wanted: CollectRequest) -> None:
    """Check the classes of a request. :raises UsageError: when one is not valid, or with options that exclude them"""
    if not wanted.guarantees:
        return
    if "://" in wanted.to:
        raise UsageError("a rate is guaranteed only to this machine, but --to is at a server", "use a local directory")
    if wanted.method or wanted.via or wanted.routes:
        raise UsageError("files with a guaranteed rate come directly", "leave --method and --via out")
    patterns = [each.pattern for each in wanted.guarantees]
    if len(set(patterns)) < len(patterns):
        raise UsageError("two classes of files have the same pattern", "use different patterns")
    for each in wanted.guarantees:
        if not each.pattern:
            raise UsageError("a class of files has no pattern", "use a pattern of file names, such as *.h5")
        check_rate(each.rate, each.share)


def _check_matches(classes: Sequence[GuaranteedClass], names: Sequence[str]) -> None:
    """Check that each class has files. :raises UsageError: when one has none"""
    for each in classes:
        if not any(fnmatchcase(name, each.pattern) for name in names):
            raise UsageError(
                f"no file fits the pattern {each.pattern!r}", f"choose a pattern of names such as {names[0]!r}"
            )


async def _show_waits(servers: CollectServers, name: str, watch: Callable[[CollectView], None]) -> None:
    """Show the servers for which the look-up of the files waits, as this machine has all permitted connections."""
    began = time.monotonic()
    while True:
        await asyncio.sleep(LOOK)
        waits = [PairView(label, HERE, 0.0, 0, 0, each.wait) for label, each in servers.by_label.items() if each.wait]
        if waits:
            seconds = time.monotonic() - began
            watch(CollectView(name, "connecting", seconds, 0, 0, 0.0, None, 0, 0, tuple(waits)))


def _options(wanted: CollectRequest) -> EngineOptions:
    """Return the options for all servers. :raises UsageError: for an invalid route or rate"""
    if wanted.limit_rate and "://" in wanted.to:
        raise UsageError(
            "--limit-rate limits what comes to this machine, but --to is at a server", "leave --limit-rate out"
        )
    admission = None if "://" in wanted.to else limited(wanted.limit_rate)
    if admission and wanted.guarantees:
        raise UsageError(
            "--guarantee makes no sense with a limited rate, at which servers cannot be measured",
            "leave out --limit-rate, or limit_rate in config.toml",
        )
    options = EngineOptions(
        DirectDialer(own_policy()),
        data_hosts=wanted.data_hosts,
        delegate=wanted.delegate,
        admission=admission,
        credentials=Credentials(),
        slots=Slots.from_environment(),
    )
    if not wanted.routes:
        return options
    from coalloc.broker_client.depot_routes import data_routes  # imported here because few users have depots

    return replace(options, data_routes=data_routes(wanted.routes, wanted.broker))


async def fetch_over(
    file: ReplicaSet,
    landing: FileDestination,
    via: Sequence[str],
    options: EngineOptions,
    watch: Callable[[CollectView], None] | None,
    results: Results[CollectReport],
) -> CollectReport | None:
    """Fetch one file from its replicas over relays, if that is faster; else do nothing and return None.

    It is faster if the rates of links are known, and the plan is faster than one without relays by the factor `WORTH`.

    :param via: URLs of the servers that may relay, with the directories in which they may stage pieces; all servers
        with measured links if empty
    :raises CoallocError: as `collect`
    """
    if not any(relays(replica.url) for replica in file.replicas):
        return None
    servers = CollectServers(options, outward=True)
    try:
        item = replace(await servers.replicas(file), name=landing.path.name, foreign=not landing.overwrite)
        for url in via or _measured_servers():
            servers.add(url, _folder(url))
        known = await _known(None, [*servers.by_label], HERE, None)
    except BaseException:
        await servers.close()
        raise
    demand = Demand((File(item.name, item.size, tuple(item.paths), (HERE,)),))
    network = guessed(known, [*servers.by_label], HERE, complete=False)
    plan = _plan(network, demand) if is_known(known, demand) else None
    if plan is None or plan[1] is None or plan[0] * WORTH > plan[1]:
        await servers.close()
        return None
    choice = partial(MethodChoice, planned_seconds=plan[0], direct_seconds=plan[1])
    field = _field(servers, landing)
    began, seed = time.time(), getrandbits(32)
    collection = CollectJob(
        [item],
        field,
        str(landing.path),
        lambda demand: choice(make(default(), network, demand, seed=seed)),
        watch,
        seed,
    )
    return await _run(collection, results, began, None, options.admission is None)


async def _run(
    collection: CollectJob, results: Results[CollectReport], began: float, broker: str | None, at_full_rate: bool
) -> CollectReport:
    """Run a collect job, and remember its results, also if it fails; but no rates to here that were limited."""
    try:
        with results.of(collection.report):
            report = await collection.run()
    except CoallocError as error:
        await _remember(collection.report(), began, broker, at_full_rate, error.message)
        raise
    await _remember(report, began, broker, at_full_rate)
    return report


def _measured_servers() -> list[str]:
    """Return all servers with measured links."""
    seen = Pairs.open().observations(time.time())
    return [label for label in dict.fromkeys(end for each in seen for end in (each.source, each.sink)) if relays(label)]


def default() -> str:
    """Return the name of the default method."""
    return "adaptive" if find_spec("scipy") else "all-at-once"


def _plan(network: Network, demand: Demand) -> tuple[float, float | None] | None:
    """Return the makespan of the plan, and of the one without relays, in seconds; None if there is no plan."""
    from coalloc import planner

    try:
        plan = planner.plan(network, demand)
    except UsageError:  # no SciPy, or no route
        return None
    return float(plan.makespan), None if plan.direct is None else float(plan.direct)


async def _known(given: Scenario | None, servers: Sequence[str], destination: str, broker: str | None) -> Network:
    """Return the network; missing values come from measurements, then from a broker's forecasts."""
    scenario = Scenario(given.network if given else Network({}, {}), urls={label: label for label in servers})
    found = await filled(scenario, broker)
    past = TransferHistory.open().estimates(servers, time.time()) if destination == HERE else {}
    return joined(found.network, inward(past))


async def _named(wanted: CollectRequest) -> tuple[list[str], list[FoundReplicas]]:
    """Return the URLs of files and directories, and the known replicas of other names.

    :raises UsageError: when a source is neither
    """
    urls = [source for source in wanted.sources if "://" in source and not (_metalink(source) or is_catalogued(source))]
    others = [source for source in wanted.sources if source not in urls]
    if not wanted.sources or "" in wanted.sources:
        raise UsageError("no source was given", "give URLs of files, or of directories with a / at the end")
    known = access(wanted.broker)
    ask, dialer = Broker(known).resolve if known else None, DirectDialer(own_policy())
    own = Credentials()
    found = []
    for source in others:
        found += await resolve([source], _no_document, ask, (dialer,), credentials=own, whole=True)
    return urls, found


def _metalink(url: str) -> bool:
    return url.lower().endswith((".meta4", ".metalink"))


async def _no_document(url: str, limit: int) -> tuple[bytes, str | None]:
    raise UsageError(f"{redact(url)}: Metalinks must be local files or http(s) URLs", "fetch it with coget get")


def _landing(to: str, servers: CollectServers, overwrite: bool) -> Destination:
    if "://" not in to:
        if not to or (Path(to).exists() and not Path(to).is_dir()):
            raise UsageError(f"{to!r} is not a directory", "give a directory with --to; it is created if necessary")
        return LocalDestination(Path(to), overwrite, PartialNames.open())
    return ServerDestination(servers.add(to), _folder(to), overwrite, StagingRecords.open())


def _folder(url: str) -> str:
    """Return the directory of a URL as a server's path; the login directory, if the URL has no path."""
    path = url.partition("://")[2].partition("/")[2]
    return (parse(url).named.rstrip("/") or "/") if path else "/~"


def _field(servers: CollectServers, landing: Destination) -> Field:
    """Return the participants, with a staging area of this collect job at each server except the destination."""
    run, records = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}", StagingRecords.open()
    areas = {
        label: StagingArea(server, servers.folders[label], run, records)
        for label, server in servers.by_label.items()
        if label in servers.folders and label != landing.label and isinstance(server, CollectServer)
    }
    return Field(servers.by_label, areas, landing, records)


async def _remember(
    report: CollectReport, began: float, broker: str | None, at_full_rate: bool, error: str | None = None
) -> None:
    """Add the collect job to this user's history, and report it to the broker."""
    transfers, measured = _transfers(report, began) if at_full_rate else [], _measured(report, began)
    TransferHistory.open().add(transfers)
    Pairs.open().add(measured)
    if known := access(broker):
        hops = collected(report, error, began, uuid4().hex, known.site or "") if at_full_rate else None
        with suppress(asyncio.CancelledError):  # an interrupt must not hide the finished job
            await send_results(Broker(known), transfers, measured=measured, decided=[hops] if hops else [])


def _measured(report: CollectReport, began: float) -> list[MeasuredLink]:
    """Return the transfers between servers that lasted long enough to measure the rate."""
    return [
        MeasuredLink(pair.source, pair.sink, began, began + pair.bytes / pair.best_rate, pair.bytes)
        for pair in report.pairs
        if pair.sink != HERE and pair.best_rate and pair.source != pair.sink
    ]


def _transfers(report: CollectReport, began: float) -> list[PastTransfer]:
    """Return the history's records of transfers to this machine, by source."""
    return [
        PastTransfer(
            url=pair.source,
            start=began,
            end=began + report.seconds,
            bytes=pair.bytes,
            busy_seconds=pair.seconds,
            setup_seconds=None,
            ranges=pair.pieces,
            streams=1,
            strategy=report.method,
            outcome="failed" if pair.source in report.gone else "ok",
            error=pair.error,
        )
        for pair in report.pairs
        if pair.sink == HERE and pair.bytes
    ]
