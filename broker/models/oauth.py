"""OAuth2 as Globus's clients speak it: scopes and their resource servers, clients, codes, tokens and consents."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from broker.errors import OAuthRefused
from broker.models.access import Caller, Role

__all__ = [
    "ALL",
    "AUTH",
    "KNOWN",
    "OPENID",
    "PAGES",
    "SCOPES",
    "TRANSFER",
    "VIEW_CONSENTS",
    "VIEW_IDENTITIES",
    "VIEW_IDENTITY_SET",
    "Answer",
    "Bearer",
    "Client",
    "Code",
    "Consent",
    "Grant",
    "Kind",
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
SCOPES = (*OPENID, VIEW_IDENTITY_SET, VIEW_CONSENTS, ALL)
"""Scopes that permit something here; a client that requests no scope gets these."""
KNOWN: Mapping[str, str] = {
    **dict.fromkeys((*OPENID, VIEW_IDENTITY_SET, VIEW_CONSENTS, VIEW_IDENTITIES), AUTH),
    ALL: TRANSFER,
    f"{URN}groups.api.globus.org:all": "groups.api.globus.org",
    f"{URN}groups.api.globus.org:view_my_groups_and_memberships": "groups.api.globus.org",
    f"{URN}search.api.globus.org:all": "search.api.globus.org",
    f"{URN}search.api.globus.org:search": "search.api.globus.org",
    f"{URL}{TIMERS}/timer": TIMERS,
    **{
        f"{URL}{FLOWS}/{name}": "flows.globus.org"
        for name in ("all", "manage_flows", "view_flows", "run", "run_status", "run_manage")
    },
}
"""All scopes that are granted, and the resource server of each. The globus CLI requires scopes of some servers that the
broker does not provide; tokens with these permit nothing. Any other scope is refused.
"""
TOKEN = re.compile(r"[^\s\[\]*]+|[\[\]*]")
LONGEST = 8192
DEEPEST = 8

Kind = Literal["token", "login", "code", "refresh", "access", "session"]
"""Kinds of tokens; each but the first is derived from one before it. A session is a browser's on the broker's pages."""


class Client(NamedTuple):
    """A program that is granted tokens.

    :param public: whether it cannot keep a secret, and so has none
    :param role: its role when it acts for itself; None: it never does, users log in with it
    :param made_by: admin who created it; None: it registered itself
    """

    id: str
    name: str
    public: bool
    role: Role | None
    made_by: str | None
    created_at: float


class UserLogin(NamedTuple):
    """A user who has logged in with a browser, or may do so.

    :param limit_at: time at which everything derived from the login expires at the latest
    """

    id: int
    caller: Caller
    login_at: float
    limit_at: float | None


class Bearer(NamedTuple):
    """A token that was sent: its owner, its resource server (None: all of the broker), and its scopes.

    :param client: client to which it was granted; None: no client
    :param number: number by which an admin lists and revokes it: its own, or that of the login or issued token from
        which it is derived; None: it is not a token of the broker
    :param issued: whether an admin issued it, so that it may issue others
    :param expires_at: expiry time; None: it does not expire, or states its expiry itself
    """

    caller: Caller
    server: str | None = None
    scopes: frozenset[str] = frozenset(KNOWN)
    client: str | None = None
    number: int | None = None
    issued: bool = False
    expires_at: float | None = None


class TokenSource(NamedTuple):
    """The origin of a new token: its owner, its client, and the number of the token from which it is derived.

    :param login_at: time at which the user authenticated
    :param limit_at: time at which everything derived from it expires at the latest
    """

    caller: Caller
    client: str | None = None
    parent: int | None = None
    login_at: float | None = None
    limit_at: float | None = None

    def until(self, seconds: float, now: float) -> float:
        """Return the expiry time of a token with this lifetime: at the latest `limit_at`."""
        return min(now + seconds, self.limit_at or now + seconds)


class Code(NamedTuple):
    """The terms of an authorization code: the client that may exchange it, and for what.

    :param challenge: S256 challenge of PKCE; None: the client has a secret, and sent no challenge
    :param offline: whether refresh tokens are requested
    """

    client: str
    redirect_uri: str
    scopes: tuple[str, ...]
    challenge: str | None
    nonce: str | None
    offline: bool


class Grant(NamedTuple):
    """A stored token of one of the kinds that clients are granted."""

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
    """A scope that a user lets a client use, through tokens that are still valid.

    :param refreshed: whether the client has a refresh token, and so need not ask again
    :param interactive: whether the user consented in a login; otherwise the client acts for itself
    """

    client: str
    scope: str
    created_at: float
    used_at: float
    refreshed: bool
    interactive: bool


class Answer(NamedTuple):
    """A new token of one resource server; `refresh_token` where one was asked for."""

    resource_server: str
    scopes: tuple[str, ...]
    access_token: str
    expires_in: int
    refresh_token: str | None = None

    def document(self) -> dict[str, object]:
        """Return the answer as a JSON object in the form of RFC 6749 and Globus."""
        content = {
            "access_token": self.access_token,
            "expires_in": self.expires_in,
            "resource_server": self.resource_server,
            "scope": " ".join(self.scopes),
            "token_type": "Bearer",
        }
        return content if self.refresh_token is None else {**content, "refresh_token": self.refresh_token}


def granted(text: str) -> Mapping[str, tuple[str, ...]]:
    """Return the scopes that a text requests, by resource server, in the order of their mention; if empty, `SCOPES`.

    Dependent scopes, in brackets, concern other servers, and are left out.

    :raises OAuthRefused: when the text cannot be parsed, or names an unknown scope

    >>> granted("openid https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer[*x[y] z] email")
    {'auth.globus.org': ('openid', 'email'), '524230d7-ea86-4a52-8312-86065a9e0417': \
('https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for word in _outermost(text):
        server = KNOWN.get(word)
        if server is None:
            raise OAuthRefused("invalid_scope", f"the scope {word[:100]!a} is not known here")
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
