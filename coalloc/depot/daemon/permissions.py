"""Decisions on which clients may use a depot, and for which destinations.

A destination is judged by the addresses that its name resolves to, and the depot connects only to these.
"""

import asyncio
import hmac
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from itertools import zip_longest
from typing import NamedTuple

from aiohappyeyeballs import AddrInfoType

from coalloc.depot.daemon.settings import DepotSettings
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort, is_numeric
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.opening import Opening
from coalloc.depot.protocol.session_header import prove
from coalloc.depot.tickets import Ticket, key_of, read_ticket
from coalloc.util.addresses import AddressClass, carried, class_of
from coalloc.util.dialer import looked_up

__all__ = ["SessionPermission", "allowed_addresses", "covers", "look_up", "permission", "permitted_addresses"]

CLOCK_SECONDS = 120.0
"""Maximum age of a request, by the clocks of client and depot."""
AHEAD_SECONDS = 5.0
"""Maximum time by which a client's clock may be ahead; its sessions wait until the time of the request."""
LOOK_UP_SECONDS = 10.0
"""Time to look a host up."""
MOST_ADDRESSES = 5
"""Maximum number of a host's addresses that are tried, as a depot may open six files for a session."""


class SessionPermission(NamedTuple):
    """A permission to open one session.

    :param user: user of the ticket, or address of a client without a ticket
    :param ticket: None if the depot takes no tickets
    :param key: the ticket's key
    """

    user: str
    ticket: Ticket | None
    key: bytes | None = None


def permission(settings: DepotSettings, client: str, opening: Opening, now: float) -> SessionPermission:
    """Return the permission of a client.

    :param client: numeric address
    :param now: time in seconds since 1970
    :raises DepotFailure: if it has none
    """
    if settings.clients and not _in_networks(client, settings):
        raise DepotFailure("denied", f"this depot does not serve your address, {client}")
    if settings.secret is None:
        if not settings.clients and class_of(client) != AddressClass.LOOPBACK:
            raise DepotFailure("denied", f"this depot does not serve your address, {client}")
        return SessionPermission(client, None)
    text = opening.header.passes[0].ticket if opening.header else opening.ticket
    if not text:
        raise DepotFailure("ticket", "this depot needs a ticket")
    ticket = read_ticket(text, settings.secret, settings.name, now)
    if ticket.client and ip_address(ticket.client) != ip_address(carried(client)[0]):
        raise DepotFailure("ticket", f"the ticket is for another client address than {client}")
    key = key_of(text, settings.secret)
    if opening.header:
        _check_proof(opening, key, now)
    elif not ticket.client:
        raise DepotFailure(
            "ticket",
            f"SOCKS5 and HTTP CONNECT need a ticket for the address {client}; yours is without a client address",
        )
    return SessionPermission(ticket.user, ticket, key)


def _check_proof(opening: Opening, key: bytes, now: float) -> None:
    header = opening.header
    assert header is not None, "the caller has checked it"
    own = header.passes[0]
    proof = own.proof.encode(errors="replace")
    if not hmac.compare_digest(proof, prove(key, header.hop, header.raw, own.link).encode()):
        raise DepotFailure(
            "ticket", "the proof is wrong: this key does not belong to the ticket, or a depot was left out"
        )
    age = now - header.request.time
    if age > CLOCK_SECONDS:
        raise DepotFailure("ticket", f"the session header is too old, or the clocks differ by {age:.0f} s")
    if age < -AHEAD_SECONDS:
        raise DepotFailure("ticket", f"the client's clock is {-age:.0f} s ahead of the depot's")


def _in_networks(client: str, settings: DepotSettings) -> bool:
    return all(any(ip_address(each) in network for network in settings.clients) for each in carried(client))


async def allowed_addresses(settings: DepotSettings, to: HostPort, ticket: Ticket | None) -> list[AddrInfoType]:
    """Look a destination up, and return those of its addresses to which the depot may connect.

    :raises DepotFailure: if there is none
    """
    found = await look_up(to)
    usable = [each for each in found if await _is_permitted(settings, to, str(each[4][0]), ticket is not None)]
    if not usable:
        raise DepotFailure("denied", f"this depot may not connect to {to}")
    if ticket is not None:
        usable = [each for each in usable if await _any_covers(ticket.destinations, to, str(each[4][0]))]
    if not usable:
        raise DepotFailure("ticket", f"the ticket does not permit {to}")
    return _first_of_each_family(usable)


async def permitted_addresses(
    settings: DepotSettings, to: HostPort, found: Iterable[AddrInfoType]
) -> list[AddrInfoType]:
    """Return those of a host's addresses to which a depot may connect for a broker, by the rules for users."""
    has_ticket = settings.secret is not None
    usable = [each for each in found if await _is_permitted(settings, to, str(each[4][0]), has_ticket)]
    return _first_of_each_family(usable)


def _first_of_each_family(found: list[AddrInfoType]) -> list[AddrInfoType]:
    families = [[each for each in found if each[0] == family] for family in dict.fromkeys(each[0] for each in found)]
    return [each for row in zip_longest(*families) for each in row if each is not None][:MOST_ADDRESSES]


async def look_up(to: HostPort) -> list[AddrInfoType]:
    """Return the addresses of a host.

    :raises DepotFailure: if it has none
    """
    try:
        async with asyncio.timeout(LOOK_UP_SECONDS):
            return await looked_up(to.host, to.port)
    except TimeoutError:
        raise DepotFailure("timeout", f"the look-up of {to.host} takes too long") from None
    except (OSError, UnicodeError):
        raise DepotFailure("unknown_host", f"there is no host named {to.host}") from None


async def covers(pattern: DestinationPattern, to: HostPort, address: str) -> bool:
    """Return whether a pattern covers a destination at this address.

    A host name covers a destination of the same name, and numeric destinations that are an address of the host: coget
    looks names up itself, and sends depots the address.
    """
    if not pattern.covers_port(to.port):
        return False
    if not pattern.host:
        return pattern.covers_address(address)
    if pattern.host == to.host:
        return True
    if is_numeric(to.host):
        with suppress(DepotFailure):
            return address in {str(each[4][0]) for each in await look_up(HostPort(pattern.host, to.port))}
    return False


async def _any_covers(patterns: Iterable[DestinationPattern], to: HostPort, address: str) -> bool:
    for pattern in patterns:
        if await covers(pattern, to, address):
            return True
    return False


async def _is_permitted(settings: DepotSettings, to: HostPort, address: str, has_ticket: bool) -> bool:
    """Return whether the settings permit an address; internal ones must be in a network that they name."""
    known = class_of(address)
    if known == AddressClass.LINK_LOCAL:
        return False
    if settings.destinations:
        named = [each for each in settings.destinations if not each.host or known == AddressClass.PUBLIC]
        return await _any_covers(named, to, address)
    if has_ticket:
        return known == AddressClass.PUBLIC
    return known == AddressClass.LOOPBACK and not settings.clients
