"""OAuth2 as Globus's clients speak it: scopes and whose they are, clients, what is asked for and what is given."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from broker.errors import Refused
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
    "Login",
    "Source",
    "granted",
]

TRANSFER = "transfer.api.globus.org"
AUTH = "auth.globus.org"
PAGES = "53b7061e-fa9c-49a8-a531-3da4cb4714c9"
"""The client that the broker's own pages are: people log in with it to see reports."""
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
"""Those that give something here; what is given to who asks for none."""
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
"""All scopes that are given, and the resource server of each. The globus CLI insists on having some of servers that
are not served here: their tokens open nothing. Any other scope is refused.
"""
TOKEN = re.compile(r"[^\s\[\]*]+|[\[\]*]")
LONGEST = 8192
DEEPEST = 8

Kind = Literal["token", "login", "code", "refresh", "access", "session"]
"""What a token is; each but the first comes of one before it. A session is a browser's, with our own pages."""


class Client(NamedTuple):
    """A program that is given tokens.

    :param public: it cannot keep a secret, and has none
    :param role: what it may do for itself; None: nothing, people log in with it
    :param made_by: None when it registered itself
    """

    id: str
    name: str
    public: bool
    role: Role | None
    made_by: str | None
    created_at: float


class Login(NamedTuple):
    """Somebody who has logged in with a browser, or may do so.

    :param limit_at: nothing that comes of it may last longer
    """

    id: int
    caller: Caller
    login_at: float
    limit_at: float | None


class Bearer(NamedTuple):
    """A token that was sent: its owner, its resource server (None: all of the broker), and its scopes.

    :param client: the client it was given to; None: no client
    :param number: the number by which an admin knows it, and ends it: its own, or that of the login or issued token
        it came from; None: it is not one of ours
    :param issued: an admin issued it, so that it may issue others
    :param expires_at: None: never, or it says so itself
    """

    caller: Caller
    server: str | None = None
    scopes: frozenset[str] = frozenset(KNOWN)
    client: str | None = None
    number: int | None = None
    issued: bool = False
    expires_at: float | None = None


class Source(NamedTuple):
    """What a token is made of: for whom, for which client, and of which token it comes.

    :param login_at: when somebody proved who they are
    :param limit_at: nothing that comes of it may last longer
    """

    caller: Caller
    client: str | None = None
    parent: int | None = None
    login_at: float | None = None
    limit_at: float | None = None

    def until(self, seconds: float, now: float) -> float:
        """When what lasts so long ends here."""
        return min(now + seconds, self.limit_at or now + seconds)


class Code(NamedTuple):
    """What a code will be exchanged for, and by whom.

    :param challenge: of PKCE, S256; None: the client has a secret, and sent none
    :param offline: refresh tokens are wanted
    """

    client: str
    redirect_uri: str
    scopes: tuple[str, ...]
    challenge: str | None
    nonce: str | None
    offline: bool


class Grant(NamedTuple):
    """A token of one of the kinds that clients are given, as it is kept."""

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
    """What somebody lets a client do for them, by tokens that are good.

    :param refreshed: it may go on without asking again
    :param asked: somebody was asked; else it is the client's own
    """

    client: str
    scope: str
    created_at: float
    used_at: float
    refreshed: bool
    asked: bool


class Answer(NamedTuple):
    """A new token of one resource server; `refresh_token` where one was asked for."""

    resource_server: str
    scopes: tuple[str, ...]
    access_token: str
    expires_in: int
    refresh_token: str | None = None

    def document(self) -> dict[str, object]:
        """As RFC 6749 and Globus write it."""
        said = {
            "access_token": self.access_token,
            "expires_in": self.expires_in,
            "resource_server": self.resource_server,
            "scope": " ".join(self.scopes),
            "token_type": "Bearer",
        }
        return said if self.refresh_token is None else {**said, "refresh_token": self.refresh_token}


def granted(text: str) -> Mapping[str, tuple[str, ...]]:
    """The scopes that a text asks for, by resource server, in the order of their mention.

    What a scope depends on, in brackets, is another server's business, and left out.

    :raises Refused: when it cannot be read, or names something unknown

    >>> granted("openid https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer[*x[y] z] email")
    {'auth.globus.org': ('openid', 'email'), '524230d7-ea86-4a52-8312-86065a9e0417': \
('https://auth.globus.org/scopes/524230d7-ea86-4a52-8312-86065a9e0417/timer',)}
    """
    found: dict[str, tuple[str, ...]] = {}
    for word in _outermost(text):
        server = KNOWN.get(word)
        if server is None:
            raise Refused("invalid_scope", f"the scope {word[:100]!a} is not known here")
        if word not in found.get(server, ()):
            found[server] = (*found.get(server, ()), word)
    return found


def _outermost(text: str) -> list[str]:
    if len(text) > LONGEST:
        raise Refused("invalid_scope", f"the scopes are longer than {LONGEST} characters")
    depth, words = 0, []
    for token in TOKEN.findall(text):
        depth += (token == "[") - (token == "]")
        if not 0 <= depth <= DEEPEST:
            raise Refused("invalid_scope", "the brackets of the scopes do not fit")
        if depth == 0 and token not in "[]*":
            words.append(token)
    if depth:
        raise Refused("invalid_scope", "the brackets of the scopes do not fit")
    return words or list(SCOPES)
