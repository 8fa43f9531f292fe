"""The connection of a depot to a broker: reports of its legs, its forwarding table, and measurements.

Nothing of this holds up sessions. Requests and look-ups run in a thread, for which the end of the process does not
wait. If the broker fails, or its answer is invalid, the earlier table stays in force until it expires.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from coalloc.broker_connection import NONSENSE, BrokerConnection, BrokerRefuses
from coalloc.config import BrokerAccess
from coalloc.depot.daemon.broker_table import BrokerTable, ChosenDepot
from coalloc.depot.daemon.forwarding import NextHop
from coalloc.depot.daemon.legs import LegBook, LegUse
from coalloc.depot.daemon.permissions import permitted_addresses
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.addresses import HostPort
from coalloc.errors import CoallocError
from coalloc.safe_text import escaped
from coalloc.util.documents import document, number
from coalloc.util.tcp_info import sent_state_of

__all__ = ["BrokerLink", "Instructions"]

log = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""Time limit for each request."""
LARGEST = 1 << 20
"""Most bytes of an answer."""
LONGEST = 3600.0
"""Maximum time in seconds for which a table is used."""
MOST_ENTRIES, MOST_MEASURED, MOST_DEPOTS = 1000, 8, 64
LOOK_UPS_SECONDS = 20.0
"""Time after which no further name is looked up."""
MEASURE_SECONDS = 5.0
LONGEST_REASON = 500

Result = TypeVar("Result")
Addresses = Mapping[HostPort, Sequence[AddrInfoType]]


class Instructions(NamedTuple):
    """A broker's answer.

    :param seconds: time for which the table is valid
    :param table: name of the next depot, and the depot, by host of the server
    :param measure: depots and servers to connect to
    :param depots: other depots that are registered
    """

    seconds: float
    table: Mapping[str, tuple[str, NextHop]]
    measure: Sequence[HostPort]
    depots: Sequence[HostPort]

    @classmethod
    def read(cls, text: str, own: str) -> "Instructions":
        """Return the instructions in an answer.

        :param own: name of this depot
        :raises ValueError: one of NONSENSE, if it is malformed, or leads to this depot itself
        """
        fields = document(text)
        table = dict(map(_entry, fields["table"][:MOST_ENTRIES]))
        if own in {name for name, _ in table.values()}:
            raise ValueError("the table has this depot itself as a next depot")
        measure, depots = _places(fields["measure"][:MOST_MEASURED]), _places(fields["depots"][:MOST_DEPOTS])
        return cls(min(number(fields["seconds"]), LONGEST), table, measure, depots)

    @property
    def places(self) -> set[HostPort]:
        """All depots and servers in it; the port of a destination is 0."""
        hops = {hop.depot for _, hop in self.table.values()}
        return {*self.measure, *self.depots, *hops, *(HostPort(host, 0) for host in self.table)}


class BrokerLink:
    """The connection to the broker in a depot's settings.

    :ivar legs: use of the legs, which is reported
    :ivar table: the broker's table
    """

    def __init__(self, settings: DepotSettings, access: BrokerAccess) -> None:
        self._settings = settings
        self._access = access
        self.legs = LegBook()
        self.table = BrokerTable()
        self._failed = False

    async def run(self) -> None:
        """Report and refresh the table, again and again."""
        while True:
            unreported, unrefreshed = await self._tried(self._report), await self._tried(self._refresh)
            if unrefreshed and not self._failed:
                log.warning("failed to refresh the broker's table: %s", unrefreshed)
            elif unreported and not self._failed:
                log.warning("failed to report the legs to the broker: %s", unreported)
            self._failed = bool(unrefreshed or unreported)
            await asyncio.sleep(self._settings.refresh_seconds)

    @staticmethod
    async def _tried(step: Callable[[], Awaitable[None]]) -> str:
        """Carry out a step; return why it failed, or an empty string."""
        try:
            await step()
        except (CoallocError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
            return escaped(str(error))[:LONGEST_REASON] or type(error).__name__  # RuntimeError: too many threads
        return ""

    async def _report(self) -> None:
        """Report the legs that were used since the last report.

        :raises CoallocError: if that fails; the next report has the same legs, unless the broker refuses them
        """
        if not (taken := self.legs.take()):
            return
        try:
            await _in_thread(partial(_send_report, self._access, self._settings.name, taken))
        except BrokerRefuses:
            raise
        except BaseException:
            self.legs.restore(taken)
            raise

    async def _refresh(self) -> None:
        """Replace the table, and measure the legs that the broker names.

        :raises CoallocError: if the broker gives no valid answer
        """
        instructions, found = await _in_thread(partial(_ask, self._access, self._settings.name))
        hops = [place for place in found if place.port]
        self.legs.name({place: _numeric(found[place]) for place in hops}, instructions.depots)
        usable = {place: await permitted_addresses(self._settings, place, found[place]) for place in hops}
        chosen: dict[str, ChosenDepot] = {}
        for host, (name, hop) in instructions.table.items():
            if addresses := usable.get(hop.depot):
                for each in (host, *_numeric(found.get(HostPort(host, 0), ()))):
                    chosen.setdefault(each, ChosenDepot(name, hop, addresses))
        self.table.replace(chosen, instructions.seconds)
        await asyncio.gather(
            *(self._measure(place, usable[place]) for place in instructions.measure if usable.get(place))
        )

    async def _measure(self, place: HostPort, addresses: Sequence[AddrInfoType]) -> None:
        """Connect to a depot or server, and count it as use of the leg."""
        loop, address = asyncio.get_running_loop(), str(addresses[0][4][0])
        began = loop.time()
        try:
            async with asyncio.timeout(MEASURE_SECONDS):
                sock = await aiohappyeyeballs.start_connection(addresses, happy_eyeballs_delay=0.25)
        except OSError as error:
            self.legs.failed(place, address, error)
            return
        with sock:
            self.legs.connected(place, address, loop.time() - began)
            with suppress(OSError):  # it was reset
                self.legs.ended(place, address, sent_state_of(sock))


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Call a function in a thread of its own; the end of the process does not wait for it.

    :raises RuntimeError: if there are too many threads
    """
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()  # so that a cancelled call does not make the thread fail

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    Thread(target=run, name="broker", daemon=True).start()
    return await asyncio.wrap_future(done)


def _send_report(access: BrokerAccess, name: str, legs: Mapping[HostPort, LegUse]) -> None:
    report = [{"host": _host(leg.host), "port": leg.port, **use.document()} for leg, use in legs.items()]
    asyncio.run(_request(_connection(access), "POST", f"{_path(name)}/legs", json={"legs": report}))


def _ask(access: BrokerAccess, name: str) -> tuple[Instructions, Addresses]:
    """Return the broker's instructions, and the addresses of the hosts in them."""
    broker = _connection(access)
    text = asyncio.run(_request(broker, "GET", f"{_path(name)}/forwarding"))
    try:
        instructions = Instructions.read(text, name)
    except NONSENSE as error:
        raise broker.nonsense(error) from None
    return instructions, _looked_up(instructions.places)


async def _request(broker: BrokerConnection, method: str, path: str, **what: Any) -> str:
    return await broker.ask(method, path, ANSWER_SECONDS, LARGEST, **what)


def _connection(access: BrokerAccess) -> BrokerConnection:
    return BrokerConnection(access, "check --broker, and that the broker is running")


def _looked_up(places: set[HostPort]) -> Addresses:
    """Return the addresses of these hosts, except those without an address."""
    end, found = time.monotonic() + LOOK_UPS_SECONDS, dict[HostPort, Sequence[AddrInfoType]]()
    for place in sorted(places):
        if time.monotonic() >= end:
            break
        with suppress(OSError, UnicodeError):
            found[place] = socket.getaddrinfo(*place, type=socket.SOCK_STREAM)
    return found


def _places(texts: Sequence[str]) -> list[HostPort]:
    """Return the valid ones of these places."""
    found = []
    for text in texts:
        with suppress(ValueError):
            found.append(HostPort.parse(text))
    return found


def _entry(fields: Mapping[str, Any]) -> tuple[str, tuple[str, NextHop]]:
    """Return the host of a table's entry, and name and place of the next depot. :raises ValueError: or the like"""
    hop = fields["next"]
    ticket = (str(hop["ticket"]), bytes.fromhex(hop["key"])) if hop["ticket"] is not None else None
    depot = HostPort.of(str(hop["host"]).strip("[]"), hop["port"])
    return HostPort.of(str(fields["destination"]).strip("[]"), 1).host, (str(hop["depot"]), NextHop(depot, ticket))


def _numeric(found: Sequence[AddrInfoType]) -> set[str]:
    return {str(each[4][0]) for each in found}


def _path(name: str) -> str:
    return f"/depots/{quote(name, safe='')}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
