"""Queries of servers about a file, for plans of downloads and for `coget doctor`; no data are moved."""

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from coalloc.config import own_policy, own_routes
from coalloc.credentials import Credentials, Presenter
from coalloc.download.agreement import Agreement, unusable
from coalloc.download.preview import preview
from coalloc.download.request import Request, ranked, relayed_dialer
from coalloc.engine import Engine, open_source, open_sources
from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.http.dav_urls import web_url
from coalloc.engine.limits.within_process import PROCESSES
from coalloc.errors import NoFreeConnection, SourceError, UsageError
from coalloc.history.finishes import FinishHistory
from coalloc.history.transfers import TransferHistory
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.plans import Plan
from coalloc.model.promises import Deadline, DeadlineView
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.model.routes import DIRECTLY, PlannedRoute
from coalloc.resolve.federated import with_caches
from coalloc.resolve.replica_urls import is_federated, replica_set
from coalloc.safe_text import redact
from coalloc.schedule.policies import make
from coalloc.util.addresses import USUAL_PORTS
from coalloc.util.concurrency import gather
from coalloc.verify import WitnessServers, agreed_checksum

if TYPE_CHECKING:
    from coalloc.depot.dialer import RelayedDialer
    from coalloc.depot.hop_checks import HopCheck

__all__ = ["ServerCheck", "check_routes", "check_servers", "planned_file"]

RELAYED = ("dav", "davs", "ftp", "ftpes", "ftps", "gsiftp", "http", "https")
"""Schemes whose connections depots relay."""


class ServerCheck(NamedTuple):
    """The result of checking a server: whether and after how many seconds it answers, the file's size, its features.

    :param credential: description of the credentials that a web server gets, and of those that are not sent
    """

    url: str
    ok: bool
    seconds: float
    size: int | None = None
    features: tuple[str, ...] = ()
    error: SourceError | None = None
    credential: str = ""


async def planned_file(request: Request, found: FoundReplicas, ask_checksum: bool = False) -> tuple[Plan, ReplicaSet]:
    """Return the plan, and the file's description with the usable replicas in the order of the plan."""
    ordered, estimates = ranked(found, TransferHistory.open())
    options = request.options
    sources = open_sources(ordered, request.engine, options)
    try:
        answers, agreement = await _answers(ordered, sources, keep=ask_checksum and len(sources) <= PROCESSES)
        known = [*ordered.checksums, *agreement.digests]
        if ask_checksum and not known:
            own = set(answers) - ordered.guests
            witnesses = WitnessServers(sources, lambda source: source in own and isinstance(answers[source], Stat))
            known = await agreed_checksum(witnesses, agreement.size or 0)
    finally:
        await asyncio.gather(*(source.close() for source in sources))
    made = preview(ordered, estimates, make(request.strategy, request.blocks), answers, known)
    made = made._replace(shares=tuple(share._replace(routes=_routes(share.url, options)) for share in made.shares))
    if request.deadline:
        made = _with_deadline(made, request.deadline, request.max_sources)
    usable = [
        replica._replace(priority=share.priority)
        for replica, share in zip(ordered.replicas, made.shares, strict=False)  # replicas left out come last
        if share.error is None
    ]
    return made, ordered._replace(replicas=tuple(usable), size=made.size, checksums=made.checksums)


def _with_deadline(made: Plan, deadline: Deadline, most: int | None) -> Plan:
    from coalloc.download.outlook import promised  # imported here because few plans have deadlines
    from coalloc.guarantees.deadline import paths_of
    from coalloc.guarantees.finish import FinishErrors

    clock, estimates = time.time(), [share.estimate for share in made.shares if share.error is None]
    paths = paths_of(estimates[:most])
    if not paths:
        return made._replace(deadline=DeadlineView(deadline, clock))
    own = FinishHistory.open().errors().get("start", ())
    view, needed = promised(deadline, made.size, paths, FinishErrors(own), clock)
    return made._replace(deadline=view, needed=needed)


def _routes(url: str, options: EngineOptions) -> tuple[PlannedRoute, ...]:
    """Return the routes to the server of a URL, the first one first; none if only direct connections are possible."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme not in RELAYED:
        return ()
    routes = tuple(PlannedRoute(each.route(host), each.expected(host)) for each in options.to(host).dialers)
    return routes if any(each.route != DIRECTLY for each in routes) else ()


async def _answers(
    file: ReplicaSet, sources: Sequence[Source], keep: bool
) -> tuple[dict[int, Stat | SourceError], Agreement]:
    """Return each server's answer, of which at least one is usable.

    :param keep: whether to keep the connections, because more queries follow soon
    """
    agreement = Agreement(file)
    answers = dict(enumerate(await gather(*(_stat(source, keep) for source in sources))))
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
    """Return a server's answer, waiting for a free connection if needed; close the connection unless `keep`."""
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


async def check_servers(
    urls: Sequence[str],
    engine: Engine = "auto",
    delegate: frozenset[str] = frozenset(),
    via: tuple[str, ...] | None = None,
    credentials: Credentials | None = None,
) -> list[ServerCheck]:
    """Check whether these servers answer about their files.

    :param delegate: hosts that may get a limited proxy if they require one
    :param via: routes over depots, as in a `Request`
    :param credentials: credentials for web servers, as in a `Request`
    """
    shown = Credentials() if credentials is None else credentials
    request = Request(tuple(urls), engine=engine, delegate=delegate, via=via, credentials=shown)
    return list(await gather(*((_check_object if is_federated(url) else _check)(url, request) for url in urls)))


async def _check(url: str, request: Request) -> ServerCheck:
    source = open_source(url, request.engine, request.options)
    began = time.monotonic()
    try:
        answer = await _stat(source)
    finally:
        await source.close()
    seconds = time.monotonic() - began
    asked = web_url(url)
    web = urlsplit(asked).scheme in ("http", "https")
    credential = Presenter(asked, request.credentials).summary() if web else ""
    if isinstance(answer, SourceError):
        return ServerCheck(redact(url), False, seconds, error=answer, credential=credential)
    features = () if answer.ranged else ("ignores ranges",)
    return ServerCheck(redact(url), True, seconds, answer.size, features, credential=credential)


async def _check_object(url: str, request: Request) -> ServerCheck:
    """Check the caches of an object of a federation, of which one must answer."""
    began = time.monotonic()
    try:
        file = await with_caches(replica_set([url]), request.options.dialers)
    except SourceError as error:
        return ServerCheck(redact(url), False, time.monotonic() - began, error=error)
    sources = open_sources(file, request.engine, request.options)
    answers = await gather(*map(_stat, sources))
    seconds, stats = time.monotonic() - began, [answer for answer in answers if isinstance(answer, Stat)]
    if not stats:
        return ServerCheck(redact(url), False, seconds, error=next(a for a in answers if isinstance(a, SourceError)))
    return ServerCheck(redact(url), True, seconds, stats[0].size, (f"{len(stats)} of {len(answers)} caches answer",))


async def check_routes(urls: Sequence[str], via: tuple[str, ...] | None = None) -> "list[list[HopCheck]]":
    """Check each hop of the routes to these servers; the list for a direct connection is empty.

    :param via: routes over depots, as in a `Request`
    :raises UsageError: for an invalid route or URL
    """
    texts = own_routes() if via is None else via
    if not texts:
        return [[] for _ in urls]
    dialer, _ = relayed_dialer(own_policy(), texts, None)
    return [await _check_route(url, dialer) for url in urls]


async def _check_route(url: str, dialer: "RelayedDialer") -> "list[HopCheck]":
    from coalloc.depot.hop_checks import check_hops
    from coalloc.depot.protocol.addresses import HostPort

    parts = urlsplit(url)
    if parts.scheme not in RELAYED:
        return []
    try:
        to = HostPort.of(parts.hostname or "", parts.port or USUAL_PORTS[parts.scheme])
    except ValueError as error:
        raise UsageError(f"cannot reach {redact(url)} over depots: {error}", "check the URL") from None
    route, policy = await dialer.route_to(to.host)
    return await check_hops(route, to, policy) if route.depots else []
