"""The listening socket of a depot, its signals, and its shutdown."""

import asyncio
import logging
import resource
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable

from coalloc.depot.daemon.audit import AuditLog
from coalloc.depot.daemon.broker_link import BrokerLink
from coalloc.depot.daemon.connecting import accept
from coalloc.depot.daemon.forwarding import ForwardingTable
from coalloc.depot.daemon.limits import Limits
from coalloc.depot.daemon.metrics import Metrics
from coalloc.depot.daemon.pump import Pump
from coalloc.depot.daemon.session import DepotSession
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.daemon.shared import Depot
from coalloc.depot.protocol.addresses import HostPort
from coalloc.errors import UsageError

__all__ = ["serve"]

log = logging.getLogger(__name__)

BACKLOG = 1024
SWEEP = 5.0
"""Maximum seconds between checks for idle sessions."""
FILES_PER_SESSION = 6
"""Two sockets, and a pipe for each direction."""
OTHER_FILES = 64
CONGESTION_CONTROLS = "/proc/sys/net/ipv4/tcp_allowed_congestion_control"


async def serve(settings: DepotSettings, ready: Callable[[HostPort], None]) -> None:
    """Serve until SIGTERM or SIGINT.

    Then accept no further connections, let running sessions end for `drain_seconds`, and reset the others. A second
    signal resets them at once. SIGHUP opens the audit log again.

    :param ready: called with the address once connections are accepted
    :raises CoallocError: if the address or a file cannot be used
    """
    settings = _within_limits(settings)
    if settings.congestion:
        _check_congestion(settings.congestion)
    listener = _listen(settings.listen)
    audit = AuditLog(settings.audit)
    table = ForwardingTable(settings.table) if settings.table else None
    limits = Limits(settings, time.time())
    link = BrokerLink(settings, settings.broker) if settings.broker else None
    closing, stop = asyncio.Event(), asyncio.Event()
    depot = Depot(settings, limits, Pump(), audit, Metrics(), table, link, set(), closing)
    acceptor, loop = _Acceptor(depot, listener), asyncio.get_running_loop()
    accepting = loop.create_task(acceptor.run())
    beside = [loop.create_task(_sweep(depot))]
    if link:
        beside.append(loop.create_task(link.run()))
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, audit.reopen)
        ready(HostPort(*listener.getsockname()[:2]))
        await stop.wait()
        accepting.cancel()
        listener.close()
        closing.set()
        stop.clear()
        await acceptor.drain(stop)
    finally:
        for task in (*beside, accepting):
            task.cancel()
        await acceptor.cancel()
        depot.pump.close()
        audit.close()
        listener.close()


def _check_congestion(name: str) -> None:
    """Raise an error if this machine has no congestion control of this name.

    :raises UsageError: with the name and the remedy
    """
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError as error:
            raise UsageError(
                f"cannot use congestion control {name}: {error.strerror}",
                f"choose one of those in {CONGESTION_CONTROLS} with --congestion",
            ) from None


def _listen(place: HostPort) -> socket.socket:
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((place.host, place.port))
    except OSError as error:
        listener.close()
        raise UsageError(
            f"cannot listen on {place}: {error.strerror}", "choose another address or port with --listen"
        ) from None
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def _within_limits(settings: DepotSettings) -> DepotSettings:
    """Return the settings with as many sessions as this process may have open files."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    possible = max(1, (most - OTHER_FILES) // FILES_PER_SESSION)
    return settings._replace(most_sessions=min(settings.most_sessions, possible))


async def _sweep(depot: Depot) -> None:
    """Reset idle sessions."""
    while True:
        await asyncio.sleep(min(SWEEP, depot.settings.idle_seconds / 4))
        depot.pump.reset_idle(depot.settings.idle_seconds)


class _Acceptor:
    """A loop that accepts connections, and starts a session for each."""

    def __init__(self, depot: Depot, listener: socket.socket) -> None:
        self._depot = depot
        self._listener = listener
        self._pending: dict[asyncio.Task[None], str] = {}
        """Tasks of connections that are not sessions yet, with the client's address."""
        self._by_client: Counter[str] = Counter()

    async def run(self) -> None:
        """Accept connections."""
        while True:
            self._start(*await accept(self._listener))

    def _start(self, client: socket.socket, peer: str) -> None:
        settings = self._depot.settings
        full = self._depot.sessions + len(self._pending) >= settings.most_sessions
        if full or self._by_client[peer] >= settings.most_per_address:
            self._depot.metrics.refused["busy"] += 1
            client.close()
            return
        task = asyncio.get_running_loop().create_task(DepotSession(self._depot, client, peer).run(len(self._pending)))
        self._pending[task] = peer
        self._by_client[peer] += 1
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[None]) -> None:
        peer = self._pending.pop(task)
        self._by_client[peer] -= 1
        if not self._by_client[peer]:
            del self._by_client[peer]
        if not task.cancelled() and (error := task.exception()):
            log.error("a session failed", exc_info=error)

    async def drain(self, hurry: asyncio.Event) -> None:
        """Wait until all sessions have ended, the time for it is over, or the event is set."""
        seconds = self._depot.settings.drain_seconds
        end = asyncio.get_running_loop().time() + seconds
        if count := len(self._depot.pump.pairs):
            log.warning("waiting up to %g s for sessions to end: %d; SIGTERM resets them now", seconds, count)
        while (self._pending or self._depot.pump.pairs or self._depot.ports) and not hurry.is_set():
            if asyncio.get_running_loop().time() >= end:
                return
            await asyncio.sleep(0.05)

    async def cancel(self) -> None:
        """End all ports, and all connections that are not sessions yet."""
        tasks = [*self._depot.ports, *self._pending]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
