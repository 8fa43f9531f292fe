"""A user's request: the files that it names, and their replicas in order of preference."""

import math
import time
from collections.abc import Iterable, Sequence
from os import PathLike, fsdecode, fspath
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args
from urllib.parse import urlsplit

from coalloc.config import access, own_policy, own_routes
from coalloc.credentials import Credentials
from coalloc.engine import Engine, open_source, speaks
from coalloc.engine.base import Admission, EngineOptions, Leads, Source
from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.limits.rate import limited
from coalloc.engine.span import Span
from coalloc.errors import UsageError
from coalloc.history.transfers import TransferHistory
from coalloc.model.checksums import Checksum
from coalloc.model.forecasts import Estimate, FoundReplicas
from coalloc.model.plans import Strategy
from coalloc.model.promises import Deadline
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.resolve import resolve
from coalloc.resolve.federated import with_caches
from coalloc.safe_text import redact
from coalloc.schedule.pauses import TRIES
from coalloc.util import checksums
from coalloc.util.addresses import AddressPolicy, class_of
from coalloc.util.dialer import DirectDialer

if TYPE_CHECKING:
    from coalloc.broker_client import Broker
    from coalloc.depot.automatic import Listed
    from coalloc.depot.dialer import RelayedDialer, RouteTimes
    from coalloc.resolve.catalogues.rucio_traces import RucioTraces

__all__ = ["Request", "dialers", "named_files", "ranked", "relayed_dialer", "several_files"]


class Dialers(NamedTuple):
    """The dialers for connections to servers.

    :param further: dialers over further routes, which sessions take in turn
    :param times: expected times of the routes; None if there are no further ones
    """

    dialer: DirectDialer
    further: tuple[DirectDialer, ...] = ()
    times: "RouteTimes | None" = None

    async def learn(self, files: Iterable[FoundReplicas]) -> None:
        """Learn the expected times of the routes to the servers of files."""
        if self.times:
            urls = (replica.url for found in files for replica in found.file.replicas)
            await self.times.learn(urlsplit(url).hostname or "" for url in urls)


class Request(NamedTuple):
    """The user's request for files, and its options.

    `sources` are replica URLs of one file, one Metalink file or URL, or names of datasets that the broker knows; a
    single one may be given as it is. `broker` is the broker's address; None for the user's usual broker. `output` is a
    file or an existing directory; None for the file's own name in the current directory. `checksum` is "ALGORITHM:HEX";
    "none" to keep no checksums; None for the default (keep adler32, compare replicas). `streams` is the number per
    source; None to choose it automatically. `staging` are URLs of servers that may relay pieces if that is faster,
    empty for all servers with measured links; None to never relay. `delegate` are hosts that may get a limited proxy if
    they require one. `proxy` is the file of the proxy to show to servers; None for the user's usual one. `overwrite`
    lets a file whose name comes from a Metalink or a broker replace a file with other content. `file` is an already
    known file, which replaces `sources`: no name is looked up. `leads` must allow each redirect before it is followed.
    `policy` restricts the addresses of the sources; None for the user's own policy, which allows any. `within` is the
    real path of a directory that `output`, then the file itself, must not leave by a symbolic link, even one created
    meanwhile; None for the directory of `output`. `beside` is the name of the directory for partial data; None for
    `NAME.coget`.
    `via` are routes over depots, as ROUTE or HOST=ROUTE; None for the user's usual ones. `dialers` are made of the
    policy and the routes, once for all connections, so that a failed route is not tried for each; None for new ones.
    `first` keeps the answers of servers that were asked whether a URL is a Metalink, for the sources. With a
    `deadline`, a transfer that will probably be late is refused, and as few sources are used as it needs. `no_clobber`
    lets no file replace a file with other content. `retries` is the number of attempts after a failure of a source,
    without success in between. `connect_seconds` is the time limit for each connection, `max_seconds` that for each
    file; None for no limit. `limit_rate` is the highest rate in bytes per second; None for no limit other than that of
    config.toml. `whole`: a name in a catalogue may stand for several files. `traces` collects traces for
    catalogues that count downloads. `admission` is made of these, once for all files. `credentials` are those that web
    servers may get; None for the user's own, from the environment and from files. With `one_file`, sources that name
    several files are refused before the first byte.
    """

    sources: Sequence[str | PathLike[str]] | str | PathLike[str]
    output: str | PathLike[str] | None = None
    strategy: Strategy = "adaptive"
    blocks: int | None = None
    streams: int | None = None
    max_sources: int | None = None
    engine: Engine = "auto"
    checksum: str | None = None
    data_hosts: frozenset[str] = frozenset()
    broker: str | None = None
    staging: tuple[str, ...] | None = None
    delegate: frozenset[str] = frozenset()
    overwrite: bool = False
    file: ReplicaSet | None = None
    policy: AddressPolicy | None = None
    within: Path | None = None
    proxy: Path | None = None
    leads: Leads | None = None
    beside: str | None = None
    first: FirstAnswers | None = None
    via: tuple[str, ...] | None = None
    dialers: Dialers | None = None
    deadline: Deadline | None = None
    credentials: Credentials | None = None
    no_clobber: bool = False
    retries: int = TRIES - 1
    connect_seconds: float = EngineOptions.connect_seconds
    max_seconds: float | None = None
    limit_rate: int | None = None
    admission: Admission | None = None
    whole: bool = False
    traces: "RucioTraces | None" = None
    one_file: bool = False

    @property
    def named(self) -> tuple[str, ...]:
        """The sources, also if only one was given as it is.

        :raises UsageError: if one is neither text nor a path
        """
        if isinstance(self.sources, Iterable) and not isinstance(self.sources, str):
            return tuple(map(_source, self.sources))
        return (_source(self.sources),)

    @property
    def path(self) -> Path | None:
        """The output as a path.

        :raises UsageError: if it cannot be a path, or names a directory that does not exist by a slash at its end
        """
        match self.output:
            case None | Path():
                return self.output
            case str() | PathLike():
                text = fspath(self.output)
                if not text:
                    raise UsageError("output is empty", "give a file name, or an existing directory")
                if text.endswith("/") and not Path(text).is_dir():
                    raise UsageError(f"{text} is not a directory", "create it first, or leave out the / at its end")
                return Path(text)
        raise UsageError(f"output is {self.output!r}, which is not a path", "give a str or a pathlib.Path")

    @property
    def expected(self) -> Checksum | None:
        """The checksum that the user gave."""
        return None if self.checksum in (None, "none") else checksums.parse(str(self.checksum))

    @property
    def own(self) -> AddressPolicy:
        """The policy of addresses for the names in `sources`."""
        return own_policy() if self.policy is None else self.policy

    @property
    def options(self) -> EngineOptions:
        """The options for reaching servers, without a limit of connections, as for queries, which move no data."""
        dialer, further, _ = self.dialers or dialers(self.own, self.via, self.broker)
        return EngineOptions(
            dialer,
            further,
            streams=self.streams or 1,
            data_hosts=self.data_hosts,
            delegate=self.delegate,
            proxy=self.proxy,
            leads=self.leads,
            first=self.first,
            credentials=Credentials() if self.credentials is None else self.credentials,
            connect_seconds=self.connect_seconds,
            admission=self.admission,
        )

    @property
    def begun(self) -> "Request":
        """The request with dialers, admission and credentials, made once for all connections.

        :raises UsageError: for an invalid route, ticket, rate or deadline, or a deadline with a limited rate
        """
        if self.deadline:
            from coalloc.guarantees.checks import check_deadline  # imported here because few transfers have deadlines

            check_deadline(self.deadline)
        admission = self.admission or limited(self.limit_rate)
        if admission and self.deadline:
            raise UsageError(
                "--by makes no sense with a limited rate, which earlier transfers cannot forecast",
                "leave out --limit-rate, or limit_rate in config.toml",
            )
        made = self.dialers or dialers(self.own, self.via, self.broker)
        shown = Credentials() if self.credentials is None else self.credentials
        return self._replace(dialers=made, admission=admission, credentials=shown)


def _source(given: object) -> str:
    """Return a source as text. :raises UsageError: if it is neither text nor a path"""
    match given:
        case str():
            return given
        case PathLike():
            path = fsdecode(given)
            return path if path.startswith("/") else f"./{path}"  # of a file, never of a dataset or a catalogue
    raise UsageError(f"{given!r} is not a source", "give a URL, a Metalink file or a name, as a str or a pathlib.Path")


def several_files() -> UsageError:
    """Return the error for a deadline of several files."""
    return UsageError("--by is for one file, but the source names several", "fetch them one by one")


def dialers(policy: AddressPolicy, via: tuple[str, ...] | None, broker: str | None) -> Dialers:
    """Return a dialer that takes these routes over depots, or the user's usual ones, and dialers of further routes.

    :param broker: the broker that knows depots, and gives tickets; None for the user's usual one
    :raises UsageError: for an invalid route or ticket
    """
    texts = own_routes() if via is None else via
    if not texts:
        return Dialers(DirectDialer(policy))
    fixed, listed = relayed_dialer(policy, texts, broker)
    if not fixed.routes.some_automatic:
        return Dialers(fixed)
    from coalloc.depot.automatic import BestDepotDialer

    best = BestDepotDialer(policy, fixed, listed)
    return Dialers(fixed, (best,), fixed.times)


def relayed_dialer(
    policy: AddressPolicy, texts: Sequence[str], broker: str | None
) -> tuple["RelayedDialer", "Listed | None"]:
    """Return a dialer that takes these routes over depots, and the broker's list of depots, if there is a broker.

    :raises UsageError: for an invalid route or ticket
    """
    from coalloc.broker_client.depot_routes import depot_routes  # imported here because few users have depots
    from coalloc.depot.dialer import RelayedDialer, RouteTimes

    routes, known = depot_routes(texts), access(broker)
    past = _past_times() if routes.some_automatic else {}
    if known is None:
        return RelayedDialer(policy, routes, times=RouteTimes(past)), None
    from coalloc.broker_client.depots import DepotDirectory

    directory = DepotDirectory(known, own_policy())
    return RelayedDialer(policy, routes, directory.complete, RouteTimes(past, directory.expected)), directory.listed


def _past_times() -> dict[str, dict[str, float]]:
    from coalloc.history.route_values import expected_times  # imported here because few users have depots
    from coalloc.history.routes import RouteHistory

    return expected_times(RouteHistory.open().newest(time.time()))


async def named_files(request: Request, broker: "Broker | None") -> list[FoundReplicas]:
    """Return the files that the request names; a checksum given by the user replaces a file's known checksums."""
    if request.engine not in get_args(Engine):
        raise UsageError(f"unknown engine {request.engine}", f"choose one of {', '.join(get_args(Engine))}")
    options = request.options

    async def fetch_document(url: str, limit: int) -> tuple[bytes, str | None]:
        document = await _read_whole(open_source(url, request.engine, options), limit)
        addresses = await options.dialer.addresses(urlsplit(url).hostname or "")
        return document, min(addresses, key=class_of, default=None)

    expected = request.expected
    if request.file is not None:
        named = [FoundReplicas(await with_caches(request.file, options.dialers), {})]
    else:
        ask = broker.resolve if broker else None
        named = await resolve(
            request.named, fetch_document, ask, options.dialers, request.first, options.credentials, request.whole
        )
    # Guests are left out if the caller allows each server, or the strategy waits for all sources.
    if request.leads or request.staging is not None or request.strategy != "adaptive":
        named = [found._replace(file=found.file.without_guests()) for found in named]
    files = [found._replace(file=_spoken(request.engine, _wanted(request, found.file))) for found in named]
    if request.one_file and len(files) > 1:
        raise UsageError(f"{redact(request.named[0])} names {len(files)} files, but one is wanted", "name one file")
    if expected is None:
        return files
    if len(files) > 1:
        raise UsageError(f"--checksum is for one file, but the sources name {len(files)}", "leave it out")
    return [files[0]._replace(file=files[0].file._replace(checksums=(expected,), vouched=True))]


def _wanted(request: Request, file: ReplicaSet) -> ReplicaSet:
    """Return the file, marked as not vouched for if the user disabled checksums."""
    return file._replace(vouched=file.vouched and request.checksum != "none")


def _spoken(engine: Engine, file: ReplicaSet) -> ReplicaSet:
    """Return the file without the replicas that the engine does not support, unless it supports none."""
    spoken = tuple(replica for replica in file.replicas if speaks(engine, replica.url))
    why = f"left out: the {engine} engine does not support it"
    left_out = tuple((redact(replica.url), why) for replica in file.replicas if replica not in spoken)
    return file._replace(replicas=spoken, left_out=(*file.left_out, *left_out)) if spoken else file


async def _read_whole(source: Source, limit: int) -> bytes:
    """Return a small document, read through an engine."""
    try:
        size = (await source.open()).size
        if size > limit:
            raise UsageError(
                f"{redact(source.url)} is larger than {limit} bytes, too large for a Metalink", "check the URL"
            )
        document = bytearray(size)

        def deliver(start: int, end: int, data: memoryview | None) -> None:
            assert data is not None, "this engine delivers bytes"
            document[start:end] = data

        await source.fetch(Span(0, size), deliver)
    finally:
        await source.close()
    return bytes(document)


def ranked(found: FoundReplicas, past: TransferHistory) -> tuple[ReplicaSet, list[Estimate]]:
    """Return the replicas in order of preference: by priority, then by forecast rate.

    Replicas that another replica's server named follow the others.

    A broker's forecasts from measurements take precedence over this user's history, which the broker also knows; a
    broker's guesses do not.
    """
    file = found.file
    expected = past.estimates([replica.url for replica in file.replicas], time.time())
    for url, estimate in found.expected.items():
        if estimate.rate is not None and (url in found.measured or expected[url].rate is None):
            expected[url] = estimate

    def worth(replica: Replica) -> tuple[bool, float, float]:
        priority = math.inf if replica.priority is None else replica.priority
        return replica.named_by is not None, priority, -(expected[replica.url].rate or 0.0)

    replicas = tuple(sorted(file.replicas, key=worth))
    return file._replace(replicas=replicas), [expected[replica.url] for replica in replicas]
