"""The contract of an engine: how bytes of one replica are had. The scheduler and the runner know nothing else.

Every engine passes `tests/contracts`; what stands here is what that suite asks.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from coalloc.addresses import policy_of
from coalloc.dialer import Dialer
from coalloc.engine.slots import Slots
from coalloc.model import Origin, Stat, Way

__all__ = ["Admission", "Deliver", "EngineOptions", "Leads", "Source", "Span"]

Deliver = Callable[[int, memoryview], None]
"""`deliver(offset, view)`: these bytes of the file have arrived. The view is only valid during the call.

Where they arrived at another server, it only stands for them, by its length.
"""


class Span:
    """The range [start, end) of a file that an engine is delivering. Its end may be lowered while it runs.

    Only the runner lowers `end`, only to a value >= start; the engine reads it before each delivery, delivers
    nothing at or beyond it, and ends its fetch when all before it is delivered.

    :param skip: parts of it that need not be delivered
    """

    __slots__ = ("end", "skip", "start")

    def __init__(self, start: int, end: int, skip: Sequence[tuple[int, int]] = ()) -> None:
        self.start = start
        self.end = end
        self.skip = skip


class Admission(NamedTuple):
    """Leave to move bytes: at most `piece` at once, each when `wait`, which is told how many, has returned."""

    piece: int
    wait: Callable[[int], Awaitable[None]]


Leads = Callable[[str], Awaitable[tuple[str, ...]]]
"""Is told the URL to which a server leads, and returns the numeric addresses to connect to there, none to look them up.

Raises a SourceError if nothing may be asked for there.
"""


@dataclass(frozen=True)
class EngineOptions:
    """What the user or an endpoint's record says about how to reach a replica."""

    dialer: Dialer
    streams: int = 1
    connect_seconds: float = 10.0
    data_hosts: frozenset[str] = frozenset()
    """Third hosts that a PASV reply may name (striped servers, dCache)."""
    delegate: frozenset[str] = frozenset()
    """Hosts that may be given a limited proxy for an hour, if they insist on one for their data connections."""
    proxy: Path | None = None
    """The file of the proxy certificate that `gsiftp://` sources show in place of the user's usual one."""
    vouched: bool = False
    """Whether a checksum of the file is known from the user, or came by https: wrong bytes would be noticed."""
    slots: Slots | None = None
    """What limits the sessions of all cogets of this machine with one server; None for no limit."""
    admission: Admission | None = None
    """What limits the rate of the replica; None for no limit. The runner waits for it, engines need not know."""
    leads: Leads | None = None
    """What is asked before a redirect is followed."""

    def named(self, origin: Origin) -> "EngineOptions":
        """The same for a replica of this origin: what servers name may not be everywhere."""
        policy = policy_of(origin, self.dialer.policy)
        return self if policy == self.dialer.policy else replace(self, dialer=self.dialer.under(policy))

    def delegates_to(self, host: str) -> bool:
        """Return whether `host` may be given a proxy: that very name was allowed, in whatever case."""
        return _plain(host) in map(_plain, self.delegate)


def _plain(host: str) -> str:
    """Return a host's name as it is compared.

    >>> _plain("SE.Example."), _plain("[::1]")
    ('se.example', '::1')
    """
    return host.strip("[]").rstrip(".").lower()


class Source(ABC):
    """One replica at one server, through one engine.

    A source is used by one task at a time, except for `close`, except that `checksum` may run beside `fetch` (an
    engine that cannot do both on one connection opens a second), and except where it `queues`. Errors are
    `coalloc.errors.SourceError`s, whose `permanent` says that trying again is of no use.
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        self.url = url
        self.options = options

    @abstractmethod
    async def open(self) -> Stat:
        """Connect, authenticate and ask for the size. May be called again after any error, and then reconnects."""

    @abstractmethod
    async def fetch(self, span: Span, deliver: Deliver) -> None:
        """Deliver [span.start, span.end), in whatever order, each byte at least once, nothing outside.

        Returns when every byte before `span.end`, as it is by then, was delivered: counted, never believed
        from a reply. May be called any number of times after `open`; if the connection was lost in between
        it is made again. Cancelling ends within milliseconds, delivers nothing more, and leaves the
        source usable. An exception raised by `deliver` ends the fetch and comes out as it is.
        """

    def widen(self, streams: int) -> None:
        """Use as many parallel streams from now on, for a fetch that is under way, too; never fewer than before.

        May be called any time after `open` has begun, and again. Each further stream joins when it is ready, without
        a gap in those that are there. An engine that cannot change their number ignores it.
        """

    @property
    def way(self) -> Way | None:
        """How data come at the moment, or will, as far as that is known; None if not at all."""
        return None

    @property
    def queues(self) -> bool:
        """Whether `fetch` may be called while others run: it is served behind them, without a pause in between."""
        return False

    @property
    def will_queue(self) -> bool:
        """Whether it does not, but is likely to when the fetch that is under way has ended."""
        return False

    @property
    def recalled(self) -> bool:
        """Whether others of this machine wait for the connection that this session has on loan."""
        return False

    @property
    def wanted(self) -> bool:
        """Whether others of this machine wait for a connection to its server while no fetch is under way here."""
        return False

    @abstractmethod
    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        """The server's own digest (lower-case hex) of bytes [start, end), or None when it cannot say.

        Several may be asked for at once.
        """

    @abstractmethod
    async def recheck(self) -> Stat | None:
        """Ask again what the replica is, over the connection that is kept, once no fetch is under way.

        Return None where that says nothing new: each answer showed that it came from the version that `open` saw.

        :raises ReplicaChanged: when the server itself says that it is another version
        """

    @abstractmethod
    async def close(self) -> None:
        """Let go of every connection. May be called twice, and after errors; never raises."""

    async def rest(self) -> None:
        """Let go of what fetches, until `open` or `fetch` has to connect again. Checksums that are asked for go on.

        May be called when no fetch is under way.
        """
        await self.close()
