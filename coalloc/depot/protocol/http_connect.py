"""HTTP CONNECT (RFC 9110, section 9.3.6), the proxy's side, and the request for metrics. Pure.

A ticket is sent as the password of HTTP's basic authentication, with any user name, or as a bearer token.
"""

import base64
import binascii
import re
from http import HTTPStatus

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure, FailureCode
from coalloc.depot.protocol.opening import Opening

__all__ = ["LONGEST_HEAD", "METRICS", "HttpConnect", "response"]

LONGEST_HEAD = 8192
METRICS = HostPort("", 0)
"""Destination of an opening that asks for the depot's metrics."""
REQUEST_LINE = re.compile(r"([A-Z]+) (\S+) HTTP/1\.[01]")
FIELD = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*")
STATUSES: dict[FailureCode, HTTPStatus] = {
    "malformed": HTTPStatus.BAD_REQUEST,
    "unsupported": HTTPStatus.METHOD_NOT_ALLOWED,
    "denied": HTTPStatus.FORBIDDEN,
    "ticket": HTTPStatus.PROXY_AUTHENTICATION_REQUIRED,
    "loop": HTTPStatus.LOOP_DETECTED,
    "busy": HTTPStatus.SERVICE_UNAVAILABLE,
    "closing": HTTPStatus.SERVICE_UNAVAILABLE,
    "unknown_host": HTTPStatus.BAD_GATEWAY,
    "unreachable": HTTPStatus.BAD_GATEWAY,
    "refused": HTTPStatus.BAD_GATEWAY,
    "timeout": HTTPStatus.GATEWAY_TIMEOUT,
}


class HttpConnect:
    """The request of one HTTP client."""

    def __init__(self) -> None:
        self._data = b""

    def receive(self, data: bytes) -> tuple[bytes, Opening | None]:
        """Process bytes from the client.

        :returns: bytes to send, and the opening once it is complete
        :raises DepotFailure: if they are malformed, or ask for anything but a tunnel
        """
        self._data += data
        head, end, rest = self._data.partition(b"\r\n\r\n")
        if len(head) > LONGEST_HEAD:
            raise DepotFailure("malformed", "the head of the HTTP request is too long")
        if not end:
            return b"", None
        first, *lines = head.decode("latin-1").split("\r\n")
        line = REQUEST_LINE.fullmatch(first)
        if not line:
            raise DepotFailure("malformed", "the HTTP request is malformed")
        if line.groups() == ("GET", "/metrics"):
            return b"", Opening(METRICS, "", b"")
        if line[1] != "CONNECT":
            advice = "only CONNECT is supported: use curl --proxytunnel, or aria2c --proxy-method=tunnel"
            raise DepotFailure("unsupported", advice)
        try:
            return b"", Opening(HostPort.parse(line[2]), _ticket(_fields(lines)), rest)
        except ValueError as error:
            raise DepotFailure("malformed", f"the HTTP request is malformed: {error}") from None

    def accepted(self, legs: tuple[float, ...]) -> bytes:
        """Return the reply once the destination is connected."""
        return b"HTTP/1.1 200 Connection established\r\n\r\n"

    def refused(self, failure: DepotFailure) -> bytes:
        """Return the reply to a client whose session failed."""
        status = STATUSES[failure.code]
        fields = ["Allow: CONNECT"] if failure.code == "unsupported" else []
        if status == HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
            fields.append('Proxy-Authenticate: Basic realm="depot", charset="UTF-8"')
        elif status == HTTPStatus.SERVICE_UNAVAILABLE:
            fields.append("Retry-After: 5")
        return response(status, failure.message, *fields)


def response(status: HTTPStatus, text: str, *fields: str) -> bytes:
    """Return a response after which the connection is closed."""
    body = f"{text.rstrip()}\n".encode()
    own = ("Content-Type: text/plain; charset=utf-8", f"Content-Length: {len(body)}", "Connection: close")
    head = "\r\n".join((f"HTTP/1.1 {status.value} {status.phrase}", *own, *fields, "", ""))
    return head.encode("latin-1") + body


def _fields(lines: list[str]) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in lines:
        field = FIELD.fullmatch(line)
        if not field:
            raise ValueError("invalid header field")
        if fields.setdefault(field[1].lower(), field[2]) != field[2] and field[1].lower() == "proxy-authorization":
            raise ValueError("it has two tickets")
    if "transfer-encoding" in fields or fields.get("content-length", "0") != "0":
        raise ValueError("a CONNECT request has no body")
    return fields


def _ticket(fields: dict[str, str]) -> str:
    scheme, _, value = fields.get("proxy-authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError("its credentials are not base64") from None
