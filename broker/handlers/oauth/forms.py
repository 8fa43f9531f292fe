"""Queries and forms of requests, and the authentication of clients."""

import base64
import binascii
from collections.abc import Mapping
from urllib.parse import parse_qsl, unquote_plus

from fastapi import Request

from broker.errors import OAuthRefused, TooLarge
from broker.factory import Factory
from broker.models.oauth import Client

__all__ = ["address", "authenticated", "body", "form", "parameters_of"]

LONGEST = 16_384
MOST = 50
FORM = "application/x-www-form-urlencoded"


def parameters_of(text: str) -> dict[str, str]:
    """Return the parameters of a query or form; those without a value are left out (RFC 6749, 3.1).

    :raises OAuthRefused: when the text is too long or malformed, or has a parameter twice
    """
    if len(text) > LONGEST:
        raise OAuthRefused("invalid_request", f"the request is longer than {LONGEST} characters")
    try:
        found = parse_qsl(text, max_num_fields=MOST, errors="strict")
    except ValueError:
        raise OAuthRefused("invalid_request", "the request cannot be read") from None
    names = [name for name, _ in found]
    if len(set(names)) < len(names):
        raise OAuthRefused("invalid_request", "the request has a parameter twice")
    if any("\0" in value for _, value in found):
        raise OAuthRefused("invalid_request", "the request has an invalid character")
    return dict(found)


async def form(request: Request) -> dict[str, str]:
    """Return the form in the request. :raises OAuthRefused: when the body is not a form"""
    if request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != FORM:
        raise OAuthRefused("invalid_request", f"the request must be {FORM}")
    try:
        return parameters_of((await body(request)).decode("ascii"))
    except UnicodeDecodeError:
        raise OAuthRefused("invalid_request", "the request cannot be read") from None


async def body(request: Request) -> bytes:
    """Return the body of a request. :raises TooLarge: above `LONGEST` bytes, since the sender may be anonymous"""
    taken = b""
    async for part in request.stream():
        taken += part
        if len(taken) > LONGEST:
            raise TooLarge(f"the request is longer than {LONGEST} bytes", "send less")
    return taken


def address(request: Request) -> str:
    """Return the client's IP address, as stated by the proxy if the proxy is trusted."""
    return request.client.host if request.client else ""


async def authenticated(request: Request, fields: Mapping[str, str], services: Factory) -> Client:
    """Return the client that sent the request, authenticated by either the header or the form.

    :raises OAuthRefused: invalid_client, invalid_request
    """
    header = request.headers.get("Authorization")
    if header is None:
        number, secret = fields.get("client_id", ""), fields.get("client_secret")
    elif "client_secret" in fields:
        raise OAuthRefused("invalid_request", "the client sent two kinds of credentials")
    else:
        number, secret = _basic(header)
    return await services.clients.authenticated(number, secret, address(request))


def _basic(header: str) -> tuple[str, str]:
    """Return the client id and secret of a header; both are form-encoded (RFC 6749, 2.3.1)."""
    kind, _, rest = header.partition(" ")
    try:
        number, colon, secret = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        number, colon, secret = "", "", ""
    if kind.lower() != "basic" or not colon:
        raise OAuthRefused("invalid_client", "the client must use HTTP Basic authentication", 401)
    return unquote_plus(number), unquote_plus(secret)
