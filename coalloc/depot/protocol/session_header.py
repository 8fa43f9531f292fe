"""The header of a depot session, and a depot's answer. Pure.

A client sends the header and its first payload in one flight:

    0   4   magic "LSL" and the version, 1
    4   2   length of the request, big endian
    6   2   length of the passes, big endian
    8       request: a JSON object that every depot of the route forwards unchanged
            passes: a JSON array of the passes of this depot and of those that follow
            payload

Each pass is a ticket and a proof: the HMAC-SHA256 of the request and of the hop's position, by a key that only the
ticket's owner and the depot know. So a ticket that was overheard on the network opens nothing, and a request cannot be
altered. The proof for a later depot also covers a link, which the depot before it computes with its own key, and sends
along. So an overheard header does not open a later depot directly. Each depot answers once the next one has
answered, or once the destination is connected:

    0   4   magic
    4   2   length of the answer, big endian
    6       answer: a JSON object: seconds of the legs, or the failure and the position of the depot that failed
            payload of the destination

Instead of a connection, a session may ask its depot for a port (`PortRequest`). Such a request has no field
`destination`, so depots that know no ports refuse it as malformed before they connect anywhere. The answer has the
number of the port, which the depot closes at the end of the session; nothing follows the answer, except further
answers with the failures of single connections.

Source: the paper on the logistical session layer, section 2: sessions with strict and loose source routes.
"""

import hmac
import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

from coalloc.depot.protocol.addresses import MOST_PORT, HostPort, is_numeric
from coalloc.depot.protocol.failures import CODES, DepotFailure, FailureCode
from coalloc.safe_text import escaped

__all__ = [
    "LONGEST_HEADER",
    "MAGIC",
    "MOST_CONNECTIONS",
    "MOST_HOPS",
    "Answer",
    "Pass",
    "PortRequest",
    "SessionHeader",
    "SessionRequest",
    "credentials",
    "prove",
]

MAGIC = b"LSL\x01"
PREFIX = struct.Struct(">4sHH")
ANSWER_PREFIX = struct.Struct(">4sH")
MOST_HOPS = 8
"""Maximum number of depots in a route."""
MOST_CONNECTIONS = 256
"""Maximum number of connections at once over one port."""
LONGEST_REQUEST = 4096
LONGEST_PASSES = 4096
LONGEST_HEADER = PREFIX.size + LONGEST_REQUEST + LONGEST_PASSES
LONGEST_ANSWER = 4096
LONGEST_MESSAGE = 500
LARGEST = 1e15
SESSION = re.compile(r"[0-9a-f]{32}")
CONGESTION = re.compile(r"[0-9a-z_-]{0,15}")
KINDS: Mapping[type, str] = {
    bool: "a boolean",
    dict: "an object",
    int: "a whole number",
    list: "a list",
    str: "a string",
}
"""Names of JSON types in messages."""

Field = TypeVar("Field")


class PortRequest(NamedTuple):
    """A request for a port at the depot, which relays all connections of one host to the destination.

    :param peer: numeric address of the host that will connect; connections of others are closed
    :param connections: maximum number of connections at once
    """

    peer: str
    connections: int


class SessionRequest(NamedTuple):
    """The part of a header that all depots of the route see.

    :param session: random id, 32 hexadecimal digits
    :param route: depots to go through, in this order
    :param destination: the server to connect to
    :param loose: whether the last depot of the route may choose further depots
    :param time: time of the request, in seconds since 1970
    :param buffer: bytes to buffer in each depot, for each direction; 0 for none
    :param congestion: congestion control of the connections between depots, and to the destination; "" for the default
    :param visited: names of depots that chose the next hop themselves
    :param port: the port that the depot shall open; None to connect to the destination
    """

    session: str
    route: tuple[HostPort, ...]
    destination: HostPort
    loose: bool
    time: float
    buffer: int = 0
    congestion: str = ""
    visited: tuple[str, ...] = ()
    port: PortRequest | None = None

    def encode(self) -> bytes:
        """Return the bytes of the request."""
        fields = self._asdict() | {"route": list(map(str, self.route)), "destination": str(self.destination)}
        if self.port is None:
            del fields["port"]
        else:
            fields["port"] = self.port._asdict() | {"destination": fields.pop("destination")}
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, raw: bytes) -> "SessionRequest":
        """Return the request of these bytes.

        :raises DepotFailure: if it is malformed
        """
        fields = _json(raw, dict)
        try:
            port, destination = _destination(fields)
            request = cls(
                session=_text(fields, "session", 32),
                route=tuple(map(HostPort.parse, _texts(fields, "route"))),
                destination=destination,
                loose=_typed(fields, "loose", bool),
                time=_number(fields, "time"),
                buffer=_typed(fields, "buffer", int),
                congestion=_text(fields, "congestion", 15),
                visited=_texts(fields, "visited"),
                port=port,
            )
        except ValueError as error:
            raise DepotFailure("malformed", f"the session header is malformed: {error}") from None
        texts = SESSION.fullmatch(request.session) and CONGESTION.fullmatch(request.congestion)
        if not texts or request.buffer < 0 or not request.route:
            raise DepotFailure("malformed", "the session header is malformed")
        if max(len(request.route), len(request.visited)) > MOST_HOPS:
            raise DepotFailure("malformed", f"the route has more than {MOST_HOPS} hops")
        if len(set(request.route)) < len(request.route):
            raise DepotFailure("loop", "the route has a depot twice")
        return request


class Pass(NamedTuple):
    """The permission of one hop: a ticket and a proof that the client is its owner; both empty without a ticket.

    :param link: what the depot before this one has added; empty at the first depot, and after one without a ticket
    """

    ticket: str = ""
    proof: str = ""
    link: str = ""


class SessionHeader(NamedTuple):
    """The header of a session, as a depot receives it.

    :param raw: bytes of the request
    :param passes: passes of this depot and of those that follow
    """

    request: SessionRequest
    raw: bytes
    passes: tuple[Pass, ...]

    @property
    def hop(self) -> int:
        """The position of the depot that receives this header."""
        return len(self.request.route) - len(self.passes)

    def encode(self) -> bytes:
        """Return the bytes of the header.

        :raises ValueError: if it is too long
        """
        passes = json.dumps(self.passes, separators=(",", ":")).encode()
        if len(self.raw) > LONGEST_REQUEST or len(passes) > LONGEST_PASSES:
            raise ValueError("the route and its tickets are too long for a session header")
        return PREFIX.pack(MAGIC, len(self.raw), len(passes)) + self.raw + passes

    @property
    def next(self) -> HostPort | None:
        """The depot that follows in the route; None for the last one."""
        return self.request.route[self.hop + 1] if len(self.passes) > 1 else None

    def forwarded(self, key: bytes | None) -> "SessionHeader":
        """Return the header for the next depot of the route.

        :param key: key of this depot's ticket; None without a ticket
        """
        following, *others = self.passes[1:]
        return self._replace(passes=(following._replace(link=_link(key, self.hop + 1, self.raw)), *others))

    @classmethod
    def decode(cls, data: bytes) -> "tuple[SessionHeader, bytes] | None":
        """Return the header at the start of these bytes, and the payload after it; None if more bytes are needed.

        :raises DepotFailure: if it is malformed
        """
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise DepotFailure("malformed", "the session header has another version")
        if len(data) < PREFIX.size:
            return None
        _, length, rest = PREFIX.unpack_from(data)
        if length > LONGEST_REQUEST or rest > LONGEST_PASSES:
            raise DepotFailure("malformed", "the session header is too long")
        end = PREFIX.size + length
        if len(data) < end + rest:
            return None
        raw = data[PREFIX.size : end]
        request = SessionRequest.decode(raw)
        try:
            passes = tuple(Pass(*_pass_fields(each)) for each in _json(data[end : end + rest], list))
        except ValueError as error:
            raise DepotFailure("malformed", f"the session header is malformed: {error}") from None
        if not 0 < len(passes) <= len(request.route):
            raise DepotFailure("malformed", "the session header has too few or too many passes")
        return cls(request, raw, passes), data[end + rest :]


class Answer(NamedTuple):
    """The answer to a session header.

    :param failure: None if the destination is connected, or the port is open
    :param legs: seconds that each depot's connection to the next hop took, in the order of the hops
    :param port: number of the open port; None if the request was for a connection
    """

    failure: DepotFailure | None
    legs: tuple[float, ...] = ()
    port: int | None = None

    def encode(self) -> bytes:
        """Return the bytes of the answer."""
        fields: dict[str, object] = {"legs": self.legs} | ({} if self.port is None else {"port": self.port})
        if self.failure:
            failure = self.failure
            fields = {"hop": failure.hop or 0, "code": failure.code, "message": failure.message[:LONGEST_MESSAGE]}
        raw = json.dumps(fields, separators=(",", ":")).encode()
        return ANSWER_PREFIX.pack(MAGIC, len(raw)) + raw

    @staticmethod
    def missing(data: bytes) -> int:
        """Return how many bytes to receive next, so that none after the answer is taken; 0 if it is complete.

        :param data: first bytes of the answer
        :raises DepotFailure: if it is malformed
        """
        if not MAGIC.startswith(data[: len(MAGIC)]):
            raise DepotFailure("malformed", "the answer is not a depot's")
        if len(data) < ANSWER_PREFIX.size:
            return ANSWER_PREFIX.size - len(data)
        length = ANSWER_PREFIX.unpack_from(data)[1]
        if length > LONGEST_ANSWER:
            raise DepotFailure("malformed", "the depot's answer is too long")
        return int(ANSWER_PREFIX.size + length - len(data))

    @classmethod
    def decode(cls, data: bytes) -> "Answer":
        """Return the answer of these bytes.

        :raises DepotFailure: if it is malformed
        """
        try:
            return cls._of(_json(data[ANSWER_PREFIX.size :], dict))
        except ValueError as error:
            raise DepotFailure("malformed", f"the depot's answer is malformed: {error}") from None

    @classmethod
    def _of(cls, fields: Mapping[str, Any]) -> "Answer":
        if "code" not in fields:
            legs = tuple(_number({"legs": each}, "legs") for each in _typed(fields, "legs", list))
            if min(legs, default=0.0) < 0:
                raise ValueError("a leg is negative")
            return cls(None, legs, _port(fields) if "port" in fields else None)
        code, hop = _text(fields, "code", 20), _typed(fields, "hop", int)
        if hop < 0:
            raise ValueError("the hop is negative")
        known = cast(FailureCode, code if code in CODES else "unsupported")
        return cls(DepotFailure(known, escaped(_text(fields, "message", LONGEST_MESSAGE)), hop))


def prove(key: bytes, hop: int, raw: bytes, link: str = "") -> str:
    """Return the proof that the sender of a request owns the ticket whose key this is.

    :param link: that of the hop's pass, in hexadecimal digits
    """
    before = link.encode(errors="replace")
    return hmac.new(key, struct.pack(">BH", hop, len(before)) + before + raw, "sha256").hexdigest()


def _link(key: bytes | None, hop: int, raw: bytes) -> str:
    """Return the link to a hop, from the key of the depot before it."""
    return hmac.new(key, b"link" + bytes([hop]) + raw, "sha256").hexdigest() if key else ""


def credentials(raw: bytes, tickets: Sequence[tuple[str, bytes] | None]) -> tuple[Pass, ...]:
    """Return the passes of all hops, from the ticket and key for each; None for a hop without a ticket."""
    passes, before = [], None
    for hop, each in enumerate(tickets):
        passes.append(Pass(each[0], prove(each[1], hop, raw, _link(before, hop, raw))) if each else Pass())
        before = each[1] if each else None
    return tuple(passes)


def _destination(fields: Mapping[str, Any]) -> tuple[PortRequest | None, HostPort]:
    """Return the wanted port, if any, and the destination.

    :raises ValueError: if they are malformed, or both forms are used at once
    """
    if "port" not in fields:
        return None, HostPort.parse(_text(fields, "destination", 300))
    wanted = _typed(fields, "port", dict)
    to = HostPort.parse(_text(wanted, "destination", 300))
    port = PortRequest(_text(wanted, "peer", 50), _typed(wanted, "connections", int))
    if "destination" in fields or not (is_numeric(to.host) and is_numeric(port.peer)):
        raise ValueError("a port needs numeric addresses")
    if not 0 < port.connections <= MOST_CONNECTIONS:
        raise ValueError(f"a port takes 1 to {MOST_CONNECTIONS} connections")
    return port, to


def _port(fields: Mapping[str, Any]) -> int:
    port = _typed(fields, "port", int)
    if not 0 < port <= MOST_PORT:
        raise ValueError("the port is out of range")
    return port


def _json(raw: bytes, kind: type[Field]) -> Field:
    try:
        return _typed({"the message": json.loads(raw)}, "the message", kind)
    except (ValueError, RecursionError):
        raise DepotFailure("malformed", f"the message is not {KINDS[kind]} in JSON") from None


def _typed(fields: Mapping[str, Any], name: str, kind: type[Field]) -> Field:
    value = fields.get(name)
    if type(value) is not kind:  # a bool does not count as an int
        raise ValueError(f"{name} is not {KINDS[kind]}")
    return value


def _number(fields: Mapping[str, Any], name: str) -> float:
    value = fields.get(name)
    if type(value) is not bool and isinstance(value, int | float) and abs(value) < LARGEST:
        return float(value)
    raise ValueError(f"{name} is not a number")


def _text(fields: Mapping[str, Any], name: str, longest: int) -> str:
    value = _typed(fields, name, str)
    if len(value) > longest:
        raise ValueError(f"{name} is too long")
    return value


def _texts(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(_text({name: each}, name, 300) for each in _typed(fields, name, list))


def _pass_fields(value: object) -> tuple[str, str, str]:
    match value:
        case [str() as ticket, str() as proof, str() as link]:
            return ticket, proof, link
    raise ValueError("a pass must consist of a ticket, a proof and a link")
