"""Many files from many GridFTP servers to one place, over other hosts where a method sends them. Wires the rooms."""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from os import urandom
from pathlib import Path
from random import getrandbits

from coalloc.brokerclient import Broker, Found
from coalloc.collection import HERE, CollectionReport, CollectionView, Wanted
from coalloc.config import access
from coalloc.dialer import DirectDialer
from coalloc.engine.base import EngineOptions
from coalloc.engine.gridftp.address import parse
from coalloc.errors import CoallocError, UsageError
from coalloc.history import History, Transfer
from coalloc.planner.network import Demand, Host, Link, LinkKey, Network
from coalloc.resolve import resolve
from coalloc.staging.collection import Collection, Field
from coalloc.staging.gathering import Gathering
from coalloc.staging.here import Here
from coalloc.staging.landing import Landing, There
from coalloc.staging.methods import Method, make
from coalloc.staging.server import Area
from coalloc.urls import redact

__all__ = ["collect"]

DEFAULT = "all-at-once"
UNKNOWN = 12_500_000
"""Bytes per second that a link is thought to carry of which nothing is known, as all others then are."""


async def collect(wanted: Wanted, watch: Callable[[CollectionView], None] | None = None) -> CollectionReport:
    """Collect files; each is at its destination when it is whole and compared with its origin, or not at all.

    What is there already is left alone. Cancelling stops cleanly, and leaves nothing at servers in between; the
    CancelledError has the report as its argument.

    :param watch: is shown views as it goes
    :raises CoallocError: with what was known in its `report`
    """
    gathering = Gathering(EngineOptions(DirectDialer(), data_hosts=wanted.data_hosts))
    for url in wanted.via:
        gathering.add(url, _folder(url))
    landing = _landing(wanted.to, gathering)
    try:
        items = await gathering.items(*await _named(wanted))
    except BaseException:
        await gathering.close()
        raise
    field = Field(gathering.servers, _areas(gathering, landing), landing)
    past, began = History.open(), time.time()
    network, known = _network([*gathering.servers], landing.label, past)

    def choose(demand: Demand) -> tuple[Method, float | None]:
        method = make(wanted.method or DEFAULT, network, demand, seed=getrandbits(32))
        return method, _direct(network, demand) if known else None

    collection = Collection(items, field, redact(wanted.to), choose, watch, getrandbits(32))
    try:
        report = await collection.run()
    except CoallocError as error:
        if isinstance(error.report, CollectionReport):
            past.add(_transfers(error.report, began))
        raise
    past.add(_transfers(report, began))
    return report


async def _named(wanted: Wanted) -> tuple[list[str], list[Found]]:
    """The URLs of files and directories, and what replicas are known of other names.

    :raises UsageError: when a word is neither
    """
    urls = [source for source in wanted.sources if "://" in source and not _metalink(source)]
    others = [source for source in wanted.sources if source not in urls]
    if not wanted.sources or "" in wanted.sources:
        raise UsageError("nothing was named to collect", "name URLs of files, or of directories with a / at the end")
    known = access(wanted.broker)
    ask = Broker(known).resolve if known else None
    found = [each for source in others for each in await resolve([source], _no_document, ask)]
    return urls, found


def _metalink(url: str) -> bool:
    return url.lower().endswith((".meta4", ".metalink"))


async def _no_document(url: str, limit: int) -> bytes:
    raise UsageError(f"{redact(url)}: Metalinks are read from this machine, or over http(s)", "fetch it with coget get")


def _landing(to: str, gathering: Gathering) -> Landing:
    if "://" not in to:
        if not to or (Path(to).exists() and not Path(to).is_dir()):
            raise UsageError(f"{to!r} is no directory", "name one with --to; it is made if need be")
        return Here(Path(to))
    return There(gathering.add(to), _folder(to))


def _folder(url: str) -> str:
    """The directory that a URL names, as servers take it; the login directory, if it names none."""
    path = url.partition("://")[2].partition("/")[2]
    return (parse(url).named.rstrip("/") or "/") if path else "/~"


def _areas(gathering: Gathering, landing: Landing) -> dict[str, Area]:
    """Where each server but the destination stages pieces of this collection."""
    run = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{urandom(4).hex()}"
    return {
        label: Area(gathering.servers[label], folder, run)
        for label, folder in gathering.folders.items()
        if label != landing.label
    }


def _network(servers: Sequence[str], destination: str, past: History) -> tuple[Network, bool]:
    """All that is known of the ways between hosts, and whether that is anything; the others are thought to be alike."""
    hosts = dict.fromkeys([*servers, destination])
    links = {
        key: Link(key, UNKNOWN)
        for key in (LinkKey(source, sink) for source in servers for sink in hosts if source != sink)
    }
    estimates = past.estimates(servers, time.time()) if destination == HERE else {}
    rates = {LinkKey(url, HERE): estimate for url, estimate in estimates.items() if estimate.rate}
    for key, estimate in rates.items():
        bounds = estimate.bounds and (int(estimate.bounds[0]), int(estimate.bounds[1]))
        links[key] = Link(key, int(estimate.rate or 0), bounds)
    return Network({name: Host(name, relays=name != HERE) for name in hosts}, links), bool(rates)


def _direct(network: Network, demand: Demand) -> float | None:
    """Seconds that all would take if every holder sent its files straight, as far as the links are all that limits."""
    loads: dict[LinkKey, int] = {}
    for file in demand.files:
        for sink in file.destinations:
            keys = [LinkKey(holder, sink) for holder in file.holders]
            best = max(keys, key=lambda key: network.links[key].capacity)
            loads[best] = loads.get(best, 0) + file.size
    return max((size / network.links[key].capacity for key, size in loads.items()), default=0.0)


def _transfers(report: CollectionReport, began: float) -> list[Transfer]:
    """What the history remembers: what came to this machine, by source."""
    return [
        Transfer(
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
