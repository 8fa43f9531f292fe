"""OAuth2 for Globus clients: scopes and their resource servers, clients, codes, tokens and consents."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from broker.errors import OAuthRefused
from broker.models.callers import Caller, Role

__all__ = [
    "ALL",
    "AUTH",
    "KNOWN",
    "OPENID",
    "PAGES",
    "SCOPES",
    "TIMER",
    "TRANSFER",
    "VIEW_CONSENTS",
    "VIEW_IDENTITIES",
    "VIEW_IDENTITY_SET",
    "Bearer",
    "Client",
    "Code",
    "Consent",
    "Grant",
    "Kind",
    "ResourceServerToken",
    "TokenSource",
    "UserLogin",
    "granted",
]

TRANSFER = "transfer.api.globus.org"
AUTH = "auth.globus.org"
PAGES = "53b7061e-fa9c-49a8-a531-3da4cb4714c9"
"""The client id of the broker's own pages; users log in with this client to see reports."""
TIMERS = "524230d7-ea86-4a52-8312-86065a9e0417"
FLOWS = "eec9b274-0c81-4334-bdc2-54e90e689b9a"
URN = "urn:globus:auth:scope:"
URL = "https://auth.globus.org/scopes/"
OPENID = ("openid", "profile", "email")
VIEW_IDENTITIES = f"{URN}{AUTH}:view_identities"
VIEW_IDENTITY_SET = f"{URN}{AUTH}:view_identity_set"
VIEW_CONSENTS = f"{URN}{AUTH}:view_consents"
ALL = f"{URN}{TRANSFER}:all"
TIMER = f"{URL}{TIMERS}/timer"
SCOPES = (*OPENID, VIEW_IDENTITY_SET, VIEW_CONSENTS, ALL, TIMER)
"""Scopes that permit something at this broker, and the default of clients that request no scope."""
KNOWN: Mapping[str, str] = {
    **dict.fromkeys((*OPENID, VIEW_IDENTITY_SET, VIEW_CONSENTS, VIEW_IDENTITIES), AUTH),
    ALL: TRANSFER,
    f"{URN}groups.api.globus.org:all": "groups.api.globus.org",
    f"{URN}groups.api.globus.org:view_my_groups_and_memberships": "groups.api.globus.org",
    f"{URN}search.api.globus.org:all": "search.api.globus.org",
    f"{URN}search.api.globus.org:search": "search.api.globus.org",
    TIMER: TIMERS,
    **{
        f"{URL}{FLOWS}/{name}": "flows.globus.org"
        for name in ("all", "manage_flows", "view_flows", "run", "run_status", "run_manage")
    },
}
"""All scopes that the broker grants, each with its resource server; other scopes are refused. The globus CLI requires
scopes of some servers that the broker does not provide: tokens with these permit nothing.
"""
TOKEN = re.compile(r"[^\s\[\]*]+|[\[\]*]")
LONGEST = 8192
DEEPEST = 8

Kind = Literal["token", "login", "code", "refresh", "access", "session"]
"""Kinds of tokens; all but the first derive from another one. A session is a browser's login at the broker's pages."""


class Client(NamedTuple):
    """A program that is granted tokens.

    :param public: whether it has no secret, because it could not protect one
    :param role: role of the program itself; None if it acts only for users who log in
    :param made_by: admin that created it; None if it registered itself
    """

    id: str
    name: str
    public: bool
    role: Role | None
    made_by: str | None
    created_at: float


class UserLogin(NamedTuple):
    """A user who has logged in with a browser, or whose token allows the login.

    :param limit_at: time at which everything derived from the login expires at the latest
    """

    id: int
    caller: Caller
    login_at: float
    limit_at: float | None


class Bearer(NamedTuple):
    """The token of a request: its owner, its resource server (None for all), and its scopes.

    :param client: client to which it was granted; None for no client
    :param number: number by which admins list and revoke it: its own, or the number of the login or issued token
        that it derives from; None if it is no token of the broker
    :param issued: whether an admin issued it, so that it may issue others
    :param expires_at: expiry time; None if it does not expire, or contains its expiry
    """

    caller: Caller
    server: str | None = None
    scopes: frozenset[str] = frozenset(KNOWN)
    client: str | None = None
    number: int | None = None
    issued: bool = False
    expires_at: float | None = None


class TokenSource(NamedTuple):
    """The origin of a new token: its owner, its client, and the number of the token that it derives from (`parent`).

    :param login_at: time at which the user authenticated
    :param limit_at: time at which everything derived from it expires at the latest
    """

    caller: Caller
    client: str | None = None
    parent: int | None = None
    login_at: float | None = None
    limit_at: float | None = None

    def until(self, seconds: float, now: float) -> float:
        """Return the expiry time of a token with a lifetime of `seconds`, limited to `limit_at`."""
        return min(now + seconds, self.limit_at or now + seconds)


class Code(NamedTuple):
    """The terms of an authorization code: the client that may exchange it, and the scopes that it gets.

    :param challenge: S256 challenge of PKCE; None if the client has a secret, and sent no challenge
    :param offline: whether refresh tokens are requested
    """

    client: str
    redirect_uri: str
    scopes: tuple[str, ...]
    challenge: str | None
    nonce: str | None
    offline: bool


class Grant(NamedTuple):
    """A stored token that was granted to a client."""

    id: int
    kind: Kind
    caller: Caller
    client: str
    server: str | None
    scopes: tuple[str, ...]
    created_at: float
    expires_at: float | None
    login_at: float | None
    limit_at: float | None


class Consent(NamedTuple):
    """A scope that a client may use for a user, through tokens that are still valid.

    :param refreshed: whether the client has a refresh token, and so need not ask the user again
    :param interactive: whether the user consented during a login; otherwise the client acts for itself
    """

    client: str
    scope: str
    created_at: float
    used_at: float
    refreshed: bool
    interactive: bool


class ResourceServerToken(NamedTuple):
    """A new access token for one resource server, with a refresh token if the client requested one."""

    resource_server: str
    scopes: tuple[str, ...]
    access_token: str
    expires_in: int
    refresh_token: str | None = None

    def document(self) -> dict[str, object]:
        """Return the response as an object in the form of RFC 6749 and Globus."""
        content = {
            "access_token": self.access_token,
            "expires_in": self.expires_in,
            "resource_server": self.resource_server,
            "scope": " ".join(self.scopes),
            "token_type": "Bearer",
        }
        return content if self.refresh_token is None else {**content, "refresh_token": self.refresh_token}


def granted(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the requested scopes by resource server, in the order of the text; `SCOPES` for an empty text.

    Dependent scopes, in brackets, are for other servers, and are left out.

    :raises OAuthRefused: when the text cannot be parsed, or names an unknown scope

    >>> granted("openid https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer[*x[y] z] email")
    {'auth.globus.org': ('openid', 'email'), '524230d7-ea86-4a52-8312-86065a9e0417': \
('https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for word in _outermost(text):
        server = KNOWN.get(word)
        if server is None:
            raise OAuthRefused("invalid_scope", f"the scope {word[:200]!a} is not offered by this broker")
        if word not in found.get(server, ()):
            found[server] = (*found.get(server, ()), word)
    return found


def _outermost(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise OAuthRefused("invalid_scope", f"the scopes are longer than {LONGEST} characters")
    depth, words = 0, []
    for token in TOKEN.findall(text):
        depth += (token == "[") - (token == "]")
        if not 0 <= depth <= DEEPEST:
            raise OAuthRefused("invalid_scope", "the brackets of the scopes do not match")
        if depth == 0 and token not in "[]*":
            words.append(token)
    if depth:
        raise OAuthRefused("invalid_scope", "the brackets of the scopes do not match")
    return words or list(SCOPES)
