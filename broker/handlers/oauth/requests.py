"""Checks of authorization requests (RFC 6749, 4.1.1)."""

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import NamedTuple, Self
from urllib.parse import unquote, urlencode, urlsplit

from broker.errors import OAuthRefused
from broker.models.oauth import PAGES, Client, Code, granted

__all__ = ["PAGES_AT", "SHOWN_AT", "AuthorizationRequest", "origin"]

SHOWN_AT = "/v2/web/auth-code"
"""The page that shows a code to copy, for programs that cannot receive a redirect."""
PAGES_AT = "/reports/login/done"
"""The page to which logins for the broker's own pages return."""
LOOPBACK = ("localhost", "127.0.0.1")
PLAIN = re.compile(r"[!#-;=?-\[\]_a-z~]{1,2000}")
"""Characters of URIs, without quotes, backslashes, blanks and angle brackets."""
CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
PARAMETERS = re.compile(r";[^/]*")
MOST = 1000


class AuthorizationRequest(NamedTuple):
    """An authorization request (RFC 6749, 4.1.1) whose client and redirect URI have been checked."""

    client: Client
    redirect_uri: str
    parameters: Mapping[str, str]
    ours: bool
    """Whether the redirect URI is a page of this broker."""

    @classmethod
    def of(cls, client: Client | None, parameters: Mapping[str, str], home: str, homes: Collection[str]) -> Self:
        """Check the client and the redirect URI of a request.

        :raises OAuthRefused: when the browser must not be redirected
        """
        if client is None:
            raise OAuthRefused("unauthorized_client", "the client is unknown to this broker")
        uri = parameters.get("redirect_uri", "")
        ours = _our_page(client, uri, home, homes)
        if not ours and (client.id == PAGES or not _this_machine(uri) or _path(uri).startswith(PAGES_AT)):
            raise OAuthRefused("invalid_request", "the client's redirect URI is not registered")
        return cls(client, uri, parameters, ours)

    def code(self) -> Code:
        """Return the terms of the code for this request. :raises OAuthRefused: when the request is invalid"""
        parameters = self.parameters
        if parameters.get("response_type") != "code":
            raise OAuthRefused("unsupported_response_type", "response_type must be code")
        challenge = parameters.get("code_challenge")
        if challenge is not None and parameters.get("code_challenge_method") != "S256":
            raise OAuthRefused("invalid_request", "code_challenge_method must be S256")
        if challenge is not None and not CHALLENGE.fullmatch(challenge):
            raise OAuthRefused("invalid_request", "code_challenge is not a SHA-256 hash")
        if challenge is None and self.client.public:
            raise OAuthRefused("invalid_request", "a client without a secret must send a code_challenge")
        if max(len(parameters.get(name, "")) for name in ("state", "nonce")) > MOST:
            raise OAuthRefused("invalid_request", f"state and nonce have at most {MOST} characters")
        scopes = tuple(scope for each in granted(parameters.get("scope", "")).values() for scope in each)
        if "none" in parameters.get("prompt", "").split():
            raise OAuthRefused("login_required", "the user must log in or consent")
        offline = parameters.get("access_type") == "offline"
        return Code(self.client.id, self.redirect_uri, scopes, challenge, parameters.get("nonce"), offline)

    def back(self, issuer: str, **answer: str) -> str:
        """Return the URL that takes the response to the client, with the issuer as a parameter (RFC 9207)."""
        state = {"state": self.parameters["state"]} if "state" in self.parameters else {}
        query = urlencode({**answer, **state, "iss": issuer})
        place = urlsplit(self.redirect_uri).path if self.ours else self.redirect_uri
        return f"{place}{'&' if '?' in place else '?'}{query}"


def _our_page(client: Client, uri: str, home: str, homes: Collection[str]) -> bool:
    """Return whether a URI is the broker's page that may receive the client's code.

    The broker's own pages use the login page of reports; all other clients use the page that shows a code to copy.
    """
    if client.id == PAGES:
        return uri == f"{home}{PAGES_AT}"
    return uri in {f"{each}{SHOWN_AT}" for each in homes}


def _path(uri: str) -> str:
    """Return the most decoded path that a server might read in a URI, in lower case.

    >>> _path("http://localhost:1/a/%252e%252e/Reports//login;v=1/./done/")
    '/reports/login/done'
    """
    path = urlsplit(uri).path
    while (shorter := unquote(path)) != path:
        path = shorter
    path = PARAMETERS.sub("", path.replace("\\", "/")).casefold()
    return "/" + posixpath.normpath(path).lstrip("/.")


def _this_machine(uri: str) -> bool:
    """Return whether a URI is certainly on the browser's own machine, on any port (RFC 8252, 7.3)."""
    return bool(PLAIN.fullmatch(uri)) and origin(uri) is not None and "#" not in uri


def origin(uri: str) -> str | None:
    """Return the origin of an HTTP URI on the browser's machine; None for other URIs."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return None
    written = f"{parts.hostname}:{port}" if port else parts.hostname
    if parts.scheme != "http" or parts.hostname not in LOOPBACK or parts.netloc.lower() != written:
        return None
    return f"http://{written}"
