import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon import permissions as module
from coalloc.depot.daemon.limits import Limits
from coalloc.depot.daemon.permissions import AHEAD_SECONDS, CLOCK_SECONDS, allowed_addresses, permission
from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.opening import Opening
from coalloc.depot.protocol.session_header import SessionHeader, SessionRequest
from coalloc.depot.route import DepotRoute, DepotTicket
from coalloc.depot.tickets import Ticket, key_of, sign
from coalloc.util.addresses import parse_networks

SECRET = b"0123456789abcdef"
NOW = 1785000000.0
TO = HostPort("192.0.2.1", 2811)
DEPOT = HostPort("198.51.100.1", 4000)
OURS = DepotSettings(secret=SECRET, name="depot-a")


def patterns(*texts: str) -> tuple[DestinationPattern, ...]:
    return tuple(map(DestinationPattern.parse, texts))


def ticket(**changed: object) -> Ticket:
    known = Ticket("id", "ann", "depot-a", patterns("192.0.2.0/24"), int(NOW) + 600, 1000, 3)
    return known._replace(**changed)


def opening(of: Ticket | None = None, at: float = NOW) -> Opening:
    """Return the opening of our own header, with this ticket."""
    text = sign(of or ticket(), SECRET)
    route = DepotRoute((DEPOT,), tickets={DEPOT: DepotTicket(text, key_of(text, SECRET))})
    header = route.header(TO, at)
    return Opening(TO, text, b"", header)


@pytest.mark.parametrize("client", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_without_options_a_depot_serves_this_machine(client: str):
    assert permission(DepotSettings(), client, Opening(TO, "", b""), NOW).user == client


@pytest.mark.parametrize("client", ["192.0.2.1", "10.0.0.1", "fe80::1", "2001:db8::1", "::ffff:192.0.2.1"])
def test_depot_without_options_refuses_other_machines(client: str):
    with pytest.raises(DepotFailure, match="does not serve"):
        permission(DepotSettings(), client, Opening(TO, "", b""), NOW)


@pytest.mark.parametrize(
    ("client", "served"), [("192.0.2.9", True), ("::ffff:192.0.2.9", True), ("192.0.3.1", False), ("127.0.0.1", False)]
)
def test_clients_are_in_the_networks(client: str, served: bool):
    settings = DepotSettings(clients=parse_networks(["192.0.2.0/24"]), destinations=patterns("192.0.2.0/24"))
    if served:
        assert permission(settings, client, Opening(TO, "", b""), NOW)
        return
    with pytest.raises(DepotFailure, match="does not serve"):
        permission(settings, client, Opening(TO, "", b""), NOW)


def test_the_owner_of_a_ticket_is_served():
    granted = permission(OURS, "203.0.113.5", opening(), NOW)
    assert (granted.user, granted.ticket) == ("ann", ticket())


@pytest.mark.parametrize(
    ("client", "given", "why"),
    [
        ("203.0.113.5", Opening(TO, "", b""), "needs a ticket"),
        ("203.0.113.5", Opening(TO, sign(ticket(), SECRET), b""), "without a client address"),
        ("203.0.113.5", Opening(TO, sign(ticket(client="203.0.113.6"), SECRET), b""), "another client"),
        ("203.0.113.5", opening(ticket(client="203.0.113.6")), "another client"),
        ("203.0.113.5", opening(ticket(depot="depot-b")), "another depot"),
        ("203.0.113.5", opening(ticket(expires=int(NOW))), "expired"),
        ("203.0.113.5", opening(at=NOW - CLOCK_SECONDS - 1), "too old"),
        ("203.0.113.5", opening(at=NOW + AHEAD_SECONDS + 1), "clock is 6 s ahead"),
    ],
)
def test_others_are_not(client: str, given: Opening, why: str):
    with pytest.raises(DepotFailure, match=why) as refused:
        permission(OURS, client, given, NOW)
    assert refused.value.code == "ticket"


@pytest.mark.parametrize("client", ["203.0.113.5", "::ffff:203.0.113.5"])
def test_a_ticket_in_the_clear_is_for_one_address(client: str):
    text = sign(ticket(client="203.0.113.5"), SECRET)
    assert permission(OURS, client, Opening(TO, text, b""), NOW).user == "ann"


def test_a_header_that_was_altered_is_refused():
    known = opening().header
    other = known.request._replace(destination=HostPort("192.0.2.2", 22))
    forged = SessionHeader(other, other.encode(), known.passes)
    with pytest.raises(DepotFailure, match="proof"):
        permission(OURS, "203.0.113.5", Opening(other.destination, known.passes[0].ticket, b"", forged), NOW)


def test_a_stolen_ticket_without_its_key_is_refused():
    text = sign(ticket(), SECRET)
    route = DepotRoute((DEPOT,), tickets={DEPOT: DepotTicket(text, b"guessed")})
    with pytest.raises(DepotFailure, match="proof"):
        permission(OURS, "203.0.113.5", Opening(TO, text, b"", route.header(TO, NOW)), NOW)


async def judged(settings: DepotSettings, to: str, of: Ticket | None = None) -> bool:
    try:
        return bool(await allowed_addresses(settings, HostPort.parse(to), of))
    except DepotFailure as failure:
        return failure.code not in ("denied", "ticket")


@pytest.mark.parametrize(
    ("destinations", "to", "allowed"),
    [
        ((), "127.0.0.1:80", True),
        ((), "localhost:80", True),
        ((), "192.0.2.1:80", False),
        ((), "10.0.0.1:80", False),
        (("192.0.2.0/24:80",), "192.0.2.1:80", True),
        (("192.0.2.0/24:80",), "192.0.2.1:81", False),
        (("192.0.2.0/24:80",), "127.0.0.1:80", False),
        (("0.0.0.0/0",), "10.0.0.1:80", True),
        (("0.0.0.0/0",), "169.254.169.254:80", False),
        (("::/0",), "[::ffff:169.254.169.254]:80", False),
        (("localhost",), "localhost:80", False),
        (("10.0.0.0/8", "192.0.2.0/24"), "10.1.1.1:80", True),
        (("10.0.0.0/8",), "[::ffff:10.1.1.1]:80", True),
        (("10.0.0.0/8",), "[::ffff:127.0.0.1]:80", False),
        (("10.0.0.0/8",), "0.0.0.0:80", False),
        (("192.0.2.0/24",), "127.1:80", False),
        (("192.0.2.0/24",), "0x7f000001:80", False),
        (("192.0.2.0/24",), "2130706433:80", False),
    ],
)
async def test_destinations_without_tickets(destinations: tuple[str, ...], to: str, allowed: bool):
    assert await judged(DepotSettings(destinations=patterns(*destinations)), to) == allowed


@pytest.mark.parametrize(
    ("destinations", "named", "to", "allowed"),
    [
        ((), ("192.0.2.0/24",), "192.0.2.1:80", True),
        ((), ("192.0.2.0/24",), "192.0.3.1:80", False),
        ((), ("192.0.2.0/24:80-81",), "192.0.2.1:82", False),
        ((), ("127.0.0.0/8",), "127.0.0.1:80", False),
        ((), ("0.0.0.0/0",), "10.0.0.1:80", False),
        ((), ("localhost",), "localhost:80", False),
        (("127.0.0.0/8",), ("127.0.0.0/8",), "127.0.0.1:80", True),
        (("127.0.0.0/8",), ("localhost",), "localhost:80", True),
        (("127.0.0.0/8",), ("localhost",), "127.0.0.1:80", True),
        (("127.0.0.0/8",), ("192.0.2.0/24",), "127.0.0.1:80", False),
        (("192.0.2.1/32",), ("192.0.2.0/24",), "192.0.2.2:80", False),
    ],
)
async def test_destinations_with_tickets(destinations, named, to: str, allowed: bool):
    settings = OURS._replace(destinations=patterns(*destinations))
    assert await judged(settings, to, ticket(destinations=patterns(*named))) == allowed


NAMES = {"ftp.example": ["198.51.100.7", "198.51.100.8"], "inside.example": ["10.0.0.7"]}
"""Addresses of hosts."""


@pytest.fixture
def names(monkeypatch):
    async def look_up(to: HostPort) -> list[AddrInfoType]:
        found = NAMES.get(to.host, [to.host])
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, to.port)) for each in found]

    monkeypatch.setattr(module, "look_up", look_up)


@pytest.mark.parametrize(
    ("to", "allowed"),
    [
        ("ftp.example:2811", True),
        ("198.51.100.8:2811", True),  # coget looks names up itself
        ("198.51.100.8:2812", False),
        ("198.51.100.9:2811", False),
        ("inside.example:2811", False),
        ("10.0.0.7:2811", False),
    ],
)
@pytest.mark.usefixtures("names")
async def test_a_name_permits_the_public_addresses_of_its_host(to: str, allowed: bool):
    settings = DepotSettings(destinations=patterns("ftp.example:2811", "inside.example"))
    assert await judged(settings, to) == allowed
    assert await judged(OURS, to, ticket(destinations=settings.destinations)) == allowed


async def test_a_name_without_an_address_is_unknown():
    with pytest.raises(DepotFailure) as refused:
        await allowed_addresses(DepotSettings(), HostPort("nowhere.invalid", 80), None)
    assert refused.value.code == "unknown_host"


@pytest.fixture
async def slow_names() -> AsyncIterator[None]:
    """Every look-up of a name waits, as the only thread for them is busy."""
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        asyncio.get_running_loop().set_default_executor(pool)
        pool.submit(end.wait)
        yield
        end.set()


async def test_a_look_up_that_takes_long_is_given_up(slow_names, monkeypatch):
    monkeypatch.setattr(module, "LOOK_UP_SECONDS", 0.01)
    with pytest.raises(DepotFailure) as refused:
        await allowed_addresses(DepotSettings(), HostPort("localhost", 80), None)
    assert refused.value.code == "timeout"


async def test_numeric_addresses_do_not_wait_for_names(slow_names):
    assert await judged(DepotSettings(), "127.0.0.1:80")


async def test_a_few_addresses_are_tried_from_each_family_in_turn(monkeypatch):
    async def many(host: str, port: int) -> list[tuple[object, ...]]:
        found = [(socket.AF_INET, f"192.0.2.{number}") for number in range(50)]
        found += [(socket.AF_INET6, f"2001:db8::{number}") for number in range(50)]
        return [(family, socket.SOCK_STREAM, 0, "", (address, port)) for family, address in found]

    monkeypatch.setattr(module, "looked_up", many)
    settings = DepotSettings(destinations=patterns("192.0.2.8/29", "2001:db8::/64"))
    found = await allowed_addresses(settings, HostPort("many.example", 80), None)
    first = ["192.0.2.8", "2001:db8::0", "192.0.2.9", "2001:db8::1", "192.0.2.10"]
    assert [each[4][0] for each in found] == first


def test_a_request_is_served_once():
    limits, given = Limits(OURS, started=NOW - 1), opening()
    granted = permission(OURS, "203.0.113.5", given, NOW)
    limits.take(granted, given.header, NOW)
    with pytest.raises(DepotFailure, match="used before"):
        limits.take(granted, given.header, NOW + 1)


def test_a_request_does_not_use_up_the_session_of_another(monkeypatch):
    monkeypatch.setattr("coalloc.depot.route.secrets.token_hex", lambda count: "0" * 2 * count)
    limits = Limits(OURS, started=NOW - 1)
    for user in ("mallory", "ann"):
        given = opening(ticket(id=user, user=user))
        limits.take(permission(OURS, "203.0.113.5", given, NOW), given.header, NOW)


def test_a_request_from_before_the_start_may_have_been_served():
    given = opening()
    with pytest.raises(DepotFailure, match="used before"):
        Limits(OURS, started=NOW + 1).take(permission(OURS, "203.0.113.5", given, NOW), given.header, NOW)


def test_a_request_is_remembered_while_it_is_valid():
    limits = Limits(OURS, started=0)
    late = opening(at=NOW + AHEAD_SECONDS - 1)
    limits.take(permission(OURS, "203.0.113.5", late, NOW), late.header, NOW)
    later = NOW + AHEAD_SECONDS + CLOCK_SECONDS - 2
    other = opening(at=later)
    limits.take(permission(OURS, "203.0.113.5", other, later), other.header, later)
    with pytest.raises(DepotFailure, match="used before"):
        limits.take(permission(OURS, "203.0.113.5", late, later), late.header, later)


def test_a_ticket_has_a_number_of_sessions():
    limits = Limits(OURS, started=0)
    for number in range(4):
        given = opening()
        granted = permission(OURS, "203.0.113.5", given, NOW)
        if number == 3:
            with pytest.raises(DepotFailure, match="used up"):
                limits.take(granted, given.header, NOW)
        else:
            _, buffer = limits.take(granted, given.header, NOW)
            limits.give_back(granted, buffer)


def test_a_user_has_a_number_of_sessions_at_once():
    settings = DepotSettings(most_per_user=2)
    limits = Limits(settings, started=time.time())
    granted = permission(settings, "127.0.0.1", Opening(TO, "", b""), NOW)
    for _ in range(2):
        limits.take(granted, None, NOW)
    with pytest.raises(DepotFailure, match="too many") as refused:
        limits.take(granted, None, NOW)
    assert refused.value.code == "busy"
    limits.give_back(granted, 0)
    limits.take(granted, None, NOW)


def test_buffers_are_shared_within_limits():
    settings = DepotSettings(buffer_per_session=1000 << 10, buffer_per_user=1500 << 10, buffer_in_all=2000 << 10)
    limits = Limits(settings, started=0)
    taken = []
    for user in ("127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.3"):
        granted = permission(settings, user, Opening(TO, "", b""), NOW)
        taken.append(limits.take(granted, asking_for(400 << 10), NOW)[1] >> 10)
    assert taken == [400, 350, 250, 0]


def asking_for(buffer: int) -> SessionHeader:
    return SessionHeader(SessionRequest("0" * 32, (DEPOT,), TO, False, NOW, buffer=buffer), b"", ())


@pytest.mark.parametrize(("wanted", "free"), [(1, 1 << 20), ((1 << 16) - 1, 1 << 20), (1 << 20, 1 << 16)])
def test_a_buffer_too_small_to_be_of_use_is_none(wanted: int, free: int):
    settings = DepotSettings(buffer_per_user=free)
    granted = permission(settings, "127.0.0.1", Opening(TO, "", b""), NOW)
    assert Limits(settings, started=0).take(granted, asking_for(wanted), NOW)[1] == 0
