"""OAuth2 as Globus's clients speak it: scopes and whose they are, clients, what is asked for and what is given."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

from broker.errors import Refused
from broker.models.access import Caller, Role

__all__ = [
    "AUTH",
    "PAGES",
    "SCOPES",
    "TRANSFER",
    "VIEW_CONSENTS",
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
PREFIXES = {
    **{f"{URN}{server}:": server for server in (TRANSFER, AUTH, "groups.api.globus.org", "search.api.globus.org")},
    f"{URL}{TIMERS}/": TIMERS,
    f"{URL}{FLOWS}/": "flows.globus.org",
}
"""By how scopes begin, the resource server. The CLI asks for all of these; only the first two are served here."""
OPENID = ("openid", "profile", "email")
VIEW_CONSENTS = f"{URN}{AUTH}:view_consents"
SCOPES = (*OPENID, f"{URN}{AUTH}:view_identity_set", VIEW_CONSENTS, f"{URN}{TRANSFER}:all")
"""Those that give something here; what is given to who asks for none."""
NAME = re.compile(r"[a-z][a-z_]{0,63}")
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
    """Whose token it is, for which resource server (None: all of the broker), and what its scopes let one see.

    :param client: that was given it; None: no client was
    """

    caller: Caller
    server: str | None = None
    scopes: frozenset[str] = frozenset(SCOPES)
    client: str | None = None


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


class Scope(NamedTuple):
    """A scope, and the resource server whose it is."""

    name: str
    server: str

    @classmethod
    def of(cls, word: str) -> Self:
        """:raises Refused: when nobody here knows it"""
        if word in OPENID:
            return cls(word, AUTH)
        for prefix, server in PREFIXES.items():
            if word.startswith(prefix) and NAME.fullmatch(word, len(prefix)):
                return cls(word, server)
        raise Refused("invalid_scope", f"{word[:100]!a} is no scope that is known here")


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
        scope = Scope.of(word)
        if scope.name not in found.get(scope.server, ()):
            found[scope.server] = (*found.get(scope.server, ()), scope.name)
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
