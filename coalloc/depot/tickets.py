"""Tickets for depots. Pure.

The broker and each depot share a secret. The broker signs a ticket with it, and derives a key from both; it gives
ticket and key to the user, and the depot derives the same key from the ticket. So a depot keeps no list of tickets, and
a stolen secret is worth nothing at other depots. A ticket has at most 255 bytes, the longest password in SOCKS5 (RFC
1929).

    t1.CLAIMS.SIGNATURE     claims: a JSON array; signature: 16 bytes of HMAC-SHA256; both in URL-safe base64
"""

import base64
import hmac
import json
from typing import NamedTuple

from coalloc.depot.protocol.addresses import DestinationPattern
from coalloc.depot.protocol.failures import DepotFailure

__all__ = ["LONGEST_TICKET", "Ticket", "key_of", "read_ticket", "sign"]

LONGEST_TICKET = 255
PREFIX = "t1"
SIGNATURE_BYTES = 16


class Ticket(NamedTuple):
    """A permission to use a depot.

    :param id: random string
    :param user: the user, as in the broker's accounts; for logs and limits
    :param depot: name of the depot
    :param destinations: patterns of servers
    :param expires: time in seconds since 1970
    :param bytes: maximum number of bytes in all sessions together, both directions
    :param sessions: maximum number of sessions, the ended ones included
    :param client: numeric address of the client; "" for any
    """

    id: str
    user: str
    depot: str
    destinations: tuple[DestinationPattern, ...]
    expires: int
    bytes: int
    sessions: int
    client: str = ""


def sign(ticket: Ticket, secret: bytes) -> str:
    """Return the text of a ticket.

    :raises ValueError: if it is too long
    """
    fields = ticket._asdict() | {"destinations": list(map(str, ticket.destinations))}
    claims = _encoded(json.dumps(list(fields.values()), separators=(",", ":"), ensure_ascii=False).encode())
    text = f"{PREFIX}.{claims}"
    text = f"{text}.{_signature(text, secret)}"
    if len(text) > LONGEST_TICKET:
        raise ValueError(f"the ticket would have {len(text)} characters, more than {LONGEST_TICKET}")
    return text


def key_of(text: str, secret: bytes) -> bytes:
    """Return the key with which the owner of a ticket proves that requests are its own."""
    return hmac.new(secret, b"key " + text.encode(), "sha256").digest()


def read_ticket(text: str, secret: bytes, depot: str, now: float) -> Ticket:
    """Return the ticket of this text after checks of its signature, depot and time.

    :raises DepotFailure: if it is forged, expired, or for another depot
    """
    signed, _, signature = text.rpartition(".")
    readable = text.isascii() and len(text) <= LONGEST_TICKET
    if not readable or not hmac.compare_digest(signature, _signature(signed, secret)):
        raise DepotFailure("ticket", "the ticket is not valid here")
    claims = signed.partition(".")[2]
    fields = Ticket(*json.loads(base64.urlsafe_b64decode(claims + "==")))
    ticket = fields._replace(destinations=tuple(map(DestinationPattern.parse, map(str, fields.destinations))))
    if ticket.depot != depot:
        raise DepotFailure("ticket", f"the ticket is for another depot: {ticket.depot}, not {depot}")
    if now >= ticket.expires:
        raise DepotFailure("ticket", "the ticket has expired")
    return ticket


def _signature(text: str, secret: bytes) -> str:
    return _encoded(hmac.new(secret, b"ticket " + text.encode(), "sha256").digest()[:SIGNATURE_BYTES])


def _encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")
