"""The contract of an engine, which fetches bytes of one replica: all that the scheduler and the runner use.

Every engine passes `tests/contracts`, which checks what is documented here. `open_source` (in `coalloc.engine`) chooses
the engine by the URL's scheme.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.limits.admission import Admission
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.span import Deliver, Span
from coalloc.model.replicas import Federation, Origin, Stat
from coalloc.model.routes import PathState, RouteUse
from coalloc.util.addresses import policy_of
from coalloc.util.dialer import Dialer, ordered

if TYPE_CHECKING:
    from coalloc.credentials import Credentials
    from coalloc.depot.data_routes import DataRoutes

__all__ = ["Admission", "EngineOptions", "Leads", "Source"]


Leads = Callable[[str], Awaitable[tuple[str, ...]]]
"""`await leads(url)`: return the numeric addresses for a redirect's target, empty to look them up.

Raises a SourceError if the redirect must not be followed.
"""


@dataclass(frozen=True)
class EngineOptions:
    """The settings for reaching a replica, from the user or an endpoint's record."""

    dialer: Dialer
    further: tuple[Dialer, ...] = ()
    """Dialers over further routes to the server; the sessions with a replica take the routes in turn."""
    streams: int = 1
    connect_seconds: float = 10.0
    data_hosts: frozenset[str] = frozenset()
    """Third hosts that a PASV reply may name (striped servers, dCache)."""
    delegate: frozenset[str] = frozenset()
    """Hosts that may get a limited proxy for an hour, if they require one for their data connections."""
    proxy: Path | None = None
    """The file of the proxy certificate for `gsiftp://` sources; None for the user's usual one."""
    vouched: bool = False
    """Whether a checksum of the file is known from the user or over https, so that wrong bytes would be noticed."""
    slots: Slots | None = None
    """Limit for the sessions of all coget processes of this machine with one server; None for no limit."""
    admission: Admission | None = None
    """Limit for the rate of the replica; None for no limit. The runner waits for it, or `Span.admitted`."""
    leads: Leads | None = None
    """Callback that must allow each redirect before it is followed."""
    first: FirstAnswers | None = None
    """Answers with which sources may begin."""
    data_routes: "DataRoutes | None" = None
    """Routes over depots for data that another server sends to this one; None for direct connections."""
    stated: Stat | None = None
    """What a listing of the server states about the replica."""
    federation: Federation | None = None
    """The federation of the replica, if its director named it."""
    credentials: "Credentials | None" = None
    """The credentials that web servers may get; None for those in the URL only."""

    def named(self, origin: Origin) -> "EngineOptions":
        """Return the options for a replica of this origin: if a server named it, its addresses are restricted.

        It then gets only credentials that its server may get whatever the origin of its name.
        """
        policy = policy_of(origin, self.dialer.policy)
        credentials = self.credentials and self.credentials.named(origin)
        changed = replace(self, credentials=credentials, federation=origin.federation)
        if policy == self.dialer.policy:
            return changed
        further = tuple(dialer.under(policy) for dialer in self.further)
        return replace(changed, dialer=self.dialer.under(policy), further=further)

    def to(self, host: str) -> "EngineOptions":
        """Return the options for a host: only with dialers that have a route to it, the expected fastest first."""
        dialer, *further = ordered((self.dialer, *self.further), host)
        return replace(self, dialer=dialer, further=tuple(further))

    @property
    def own(self) -> bool:
        """Return whether the user's own credentials may be used, from the environment and from files."""
        return self.credentials is None or self.credentials.own

    @property
    def dialers(self) -> tuple[Dialer, ...]:
        """The dialers over all routes."""
        return self.dialer, *self.further

    def over(self, number: int) -> "EngineOptions":
        """Return the options for the session with this number, from 0: the sessions take the routes in turn."""
        return replace(self, dialer=self.dialers[number % len(self.dialers)])

    def delegates_to(self, host: str) -> bool:
        """Return whether `host` may get a proxy: `delegate` must have this name, in upper or lower case."""
        return _plain(host) in map(_plain, self.delegate)


def _plain(host: str) -> str:
    """Return a host's name in the form used for comparison.

    >>> _plain("SE.Example."), _plain("[::1]")
    ('se.example', '::1')
    """
    return host.strip("[]").rstrip(".").lower()


class Source(ABC):
    """One replica at one server, through one engine.

    `open_source` returns a nest of three: `sessions.Parallel` has several `sessions.ReplicaSession`s, and each of these
    has one source of an engine, such as `gridftp.GridFTPSource`.

    A source is used by one task at a time, with three exceptions: `close`; `checksum`, which may run beside `fetch` (an
    engine that cannot do both on one connection opens a second); and `fetch` on a source that `queues`. Errors are
    `coalloc.errors.SourceError`s; if `permanent` is set, a retry is useless.
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        self.url = url
        self.options = options

    @abstractmethod
    async def open(self) -> Stat:
        """Connect, authenticate and ask for the size. May be called again after any error, to reconnect."""

    @abstractmethod
    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Deliver [span.start, span.end) in any order, each byte at least once, nothing outside.

        Returns when every byte before the current `span.end` was delivered, by count, never by a server's reply. May be
        called any number of times after `open`; reconnects if the connection was lost in between. If the replica is not
        ranged, the engine awaits `span.admitted` before it reads on.
        Cancelling takes effect within milliseconds, delivers nothing more, and leaves the source usable. An exception
        raised by `deliver` ends the fetch and is passed on unchanged.
        """

    def widen(self, streams: int) -> None:
        """Raise the number of parallel streams, also for a fetch under way; it never falls.

        May be called any time after `open` has begun, and repeatedly. Each further stream joins when it is ready,
        without a gap in the existing ones. An engine that cannot change their number ignores the call.
        """

    @property
    def path_state(self) -> PathState | None:
        """The current or expected state of the network path of the data; None if unknown."""
        return None

    @property
    def queues(self) -> bool:
        """Return whether `fetch` may be called while other fetches run; it then follows them without a pause."""
        return False

    @property
    def will_queue(self) -> bool:
        """Return whether the source cannot queue now, but probably can when the current fetch has ended."""
        return False

    @property
    def routes(self) -> tuple[RouteUse, ...]:
        """The use of each route to the server so far; empty if only direct connections are possible."""
        return ()

    @property
    def unchanged_at(self) -> float:
        """Return the time of the last request whose answer showed that the replica is the version that `open` saw.

        It is a time of the event loop's clock. All bytes that had arrived by then are of this version. Minus infinity
        if answers to requests for ranges do not show the version.
        """
        return -inf

    @property
    def wanted(self) -> bool:
        """Return whether other sessions of this machine wait for this server, while this source fetches nothing."""
        return False

    @abstractmethod
    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """Return the server's own digest (lower-case hex) of bytes [start, end), or None when it cannot compute it.

        Several digests may be requested at once.
        """

    @abstractmethod
    async def recheck(self) -> Stat | None:
        """Ask for the replica's size and version again over the existing connection, while no fetch is under way.

        Return None without asking if every answer so far has shown the version that `open` saw.

        :raises ReplicaChanged: when the server itself reports another version
        :raises SourceError: when it does not answer
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every connection. May be called twice, and after errors; never raises."""

    async def rest(self) -> None:
        """Close the connections used for fetching; `open` or `fetch` reconnects. Pending checksums continue.

        May be called when no fetch is under way.
        """
        await self.close()
