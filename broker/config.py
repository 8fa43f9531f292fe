"""What the broker is told when it starts."""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from broker.config_credentials import Credential, credentials
from broker.config_document import document
from broker.config_posting import LOOPBACK, Posting, posting
from broker.errors import Invalid
from broker.models.access import ROLES, Role
from broker.models.subjects import LONGEST_PART
from broker.models.usernames import Usernames
from coalloc.addresses import Network, parse_networks
from coalloc.planner import units
from coalloc.urls import redact

__all__ = [
    "LOOPBACK",
    "Hook",
    "Introspection",
    "Issuer",
    "Probing",
    "Provider",
    "Settings",
    "Strategy",
    "configured",
    "issuers",
]

Strategy = Literal["priority", "predicted", "distance", "random"]
ASYMMETRIC = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""A shared secret would let the broker, and whoever gets at the public key, sign."""

SHORTEST_KEY = 24


class Issuer(NamedTuple):
    """Who signs tokens that count here.

    :param url: as the tokens name it
    :param audience: for whom tokens must be: us, by any of these names
    :param roles: what scopes or groups give
    """

    url: str
    audience: tuple[str, ...]
    roles: Mapping[str, Role]
    algorithms: tuple[str, ...] = ("RS256", "ES256")


class Introspection(NamedTuple):
    """Who says what tokens are that say nothing by themselves (RFC 7662).

    :param url: where it is asked
    :param client_id: as which the broker is known there
    :param roles: what scopes or groups give
    :param audience: for whom tokens must be: us, by any of these names
    :param issuer: whose tokens it knows, and no others; empty: that is not known
    """

    url: str
    client_id: str
    client_secret: str
    roles: Mapping[str, Role]
    audience: tuple[str, ...]
    issuer: str = ""


class Hook(NamedTuple):
    """Who is told of tasks that are over.

    :param key: with which what is told is signed
    """

    url: str
    key: bytes


class Probing(NamedTuple):
    """What measuring ways between endpoints may take, while nothing else is done.

    :param a_day: bytes a day
    :param bytes: of one measurement at most
    :param seconds: of one measurement at most
    """

    a_day: int
    bytes: int = 64_000_000
    seconds: float = 5.0


class Provider(NamedTuple):
    """Who says who people are, when they log in with a browser (OpenID Connect).

    :param issuer: one of the issuers: its roles count
    :param client_id: as which the broker is known there
    :param scope: what the broker wants to be told of people
    """

    issuer: str
    client_id: str
    client_secret: str
    scope: str = "openid profile email"


class Settings(NamedTuple):
    """How one broker behaves; the defaults are meant to be good.

    :param database: its address, as SQLAlchemy writes it
    :param anonymous: who has no token may read
    :param ranking: by what replicas are ordered: each decides where those before it say nothing
    :param explore: of how many answers at most one puts a replica first of whose path nothing is known; 0 is never
    :param keep_days: what ended earlier is forgotten; None is never
    :param issuers: whose signed tokens count, beside our own
    :param introspection: whose other tokens count
    :param hook: who is told of tasks that are over
    :param requests_per_second: of one caller, on average
    :param largest_body: bytes that a request may have, imports apart
    :param added_per_hour: transfers and names that one user may report and import
    :param site: where this process is: folders of collections at it are folders of this machine
    :param probing: what measuring ways between endpoints may take; None measures none
    :param credentials: proxy certificates and where they may be shown, by the names that collections call them
    :param posting: where each week's report goes
    :param proxies: networks of the proxies whose word counts of where a request comes from; empty: of none
    :param network: private and loopback addresses that endpoints may have, whoever registered them
    :param copy_unverified: whether files that cannot be verified are copied, though they should be verified
    """

    database: str = "sqlite:///coget-broker.sqlite"
    anonymous: bool = False
    ranking: tuple[Strategy, ...] = ("priority", "predicted", "distance")
    explore: int = 20
    keep_days: float | None = None
    issuers: tuple[Issuer, ...] = ()
    requests_per_second: float = 1000.0
    largest_body: int = 24 << 20
    added_per_hour: int = 2_000_000
    site: str = ""
    credentials: Mapping[str, Credential] = MappingProxyType({})
    public_url: str = ""
    provider: Provider | None = None
    introspection: Introspection | None = None
    hook: Hook | None = None
    probing: Probing | None = None
    posting: Posting | None = None
    proxies: tuple[str, ...] = ()
    network: tuple[Network, ...] = ()
    copy_unverified: bool = False

    @property
    def domain(self) -> str:
        """Of user names that have none of their own."""
        return urlsplit(self.public_url).hostname or "localhost"

    @property
    def namers(self) -> tuple[tuple[str, str | None], ...]:
        """Who names people: the address, and the issuer that this is; None where that is not known."""
        signing = tuple((each.url, each.url) for each in self.issuers)
        asked = self.introspection
        return (*signing, (asked.url, asked.issuer or None)) if asked else signing

    @property
    def usernames(self) -> Usernames:
        """How people are called."""
        return Usernames.among(self.domain, (issuer or url for url, issuer in self.namers))


def configured(settings: Settings, path: Path) -> Settings:
    """These settings, with what a TOML file says.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    return settings._replace(
        issuers=issuers(path),
        provider=_provider(path),
        credentials=credentials(path, document(path).get("credentials", {})),
        introspection=_introspection(path),
        hook=_hook(path),
        probing=_probing(path),
        posting=posting(path, document(path).get("report")),
        network=_network(path),
        proxies=_proxies(path),
        copy_unverified=_copy_unverified(path),
        added_per_hour=_added_per_hour(path) or settings.added_per_hour,
    )


def _added_per_hour(path: Path) -> int | None:
    """That of a TOML file: `[limits]` with added_per_hour; None where it says nothing.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("limits", {"added_per_hour": None})
    rows = said["added_per_hour"] if isinstance(said, dict) and said.keys() == {"added_per_hour"} else 0
    if rows is not None and (type(rows) is not int or rows < 1):
        raise Invalid(f"{path}: [limits] makes no sense", "write [limits] and added_per_hour = 2000000")
    return rows


def _copy_unverified(path: Path) -> bool:
    """That of a TOML file: `[transfers]` with copy_unverified.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("transfers", {})
    found = (
        said.get("copy_unverified", False) if isinstance(said, dict) and said.keys() <= {"copy_unverified"} else None
    )
    if not isinstance(found, bool):
        raise Invalid(f"{path}: [transfers] makes no sense", "write [transfers] and copy_unverified = true")
    return found


def _proxies(path: Path) -> tuple[str, ...]:
    """Those of a TOML file: `[proxy]` with trusted, addresses and networks of proxies in front of the broker.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("proxy", {})
    remedy = 'write [proxy] and trusted = ["127.0.0.1", "192.0.2.0/24"]'
    try:
        if strange := said.keys() - {"trusted"}:
            raise ValueError(f"{', '.join(sorted(strange))} is nothing that is known")
        return tuple(str(ipaddress.ip_network(each)) for each in said.get("trusted", []))
    except (ValueError, TypeError, AttributeError) as error:
        raise Invalid(f"{path}: [proxy] makes no sense: {error}", remedy) from None


def issuers(path: Path) -> tuple[Issuer, ...]:
    """Those of a TOML file: `[[issuer]]` with url, audience, roles, and algorithms if they are others than usual.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    return tuple(_issuer(path, said) for said in document(path).get("issuer", []))


def _provider(path: Path) -> Provider | None:
    """That of a TOML file: `[login]` with issuer, client_id, client_secret, and scope if need be.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("login")
    if said is None:
        return None
    remedy = 'write issuer = "https://...", as an [[issuer]] has it, client_id = "...", client_secret = "..."'
    try:
        login = Provider(**said)
    except TypeError as error:
        raise Invalid(f"{path}: [login] is not whole: {error}", remedy) from None
    if not all(isinstance(value, str) for value in login):
        raise Invalid(f"{path}: [login] has a value that is no text", remedy)
    if login.issuer not in {issuer.url for issuer in issuers(path)}:
        raise Invalid(f"{path}: {redact(login.issuer)} is no [[issuer]], whose roles would count", remedy)
    return login


def _introspection(path: Path) -> Introspection | None:
    """That of a TOML file: `[introspection]` with url, client_id, client_secret, roles; audience and issuer if need be.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("introspection")
    if said is None:
        return None
    remedy = 'write url = "https://...", client_id = "...", client_secret = "...", roles = { "SCOPE" = "reader" }'
    try:
        asked = Introspection(**{"audience": said["client_id"], **said})
        asked = asked._replace(roles=dict(asked.roles), audience=_names(asked.audience))
    except (KeyError, TypeError, ValueError) as error:
        raise Invalid(f"{path}: [introspection] is not whole: {error}", remedy) from None
    texts = all(isinstance(value, str) for value in (*asked[:3], *asked.audience, asked.issuer))
    named = texts and all(map(_names_people, (asked.url, asked.issuer or asked.url)))
    if not named or not set(asked.roles.values()) <= set(ROLES):
        raise Invalid(f"{path}: [introspection] makes no sense", remedy)
    return asked


def _names_people(url: str) -> bool:
    """Whether an issuer may have this URL: http or https, with a host, and no fragment (OpenID Connect, 2)."""
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return (
        url.startswith(("http://", "https://"))
        and bool(host)
        and "#" not in url
        and url.isprintable()
        and len(url.encode()) <= LONGEST_PART
    )


def _network(path: Path) -> tuple[Network, ...]:
    """Those of a TOML file: `[network]` with `allow`, a list of networks.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("network")
    if said is None:
        return ()
    remedy = 'write allow = ["10.0.0.0/8", "fd00:1::/48"]; link-local ones are never allowed'
    try:
        (allowed,) = [said["allow"]] if said.keys() == {"allow"} and isinstance(said["allow"], list) else []
        return parse_networks(allowed)
    except (AttributeError, ValueError) as error:
        raise Invalid(f"{path}: [network] makes no sense: {error}", remedy) from None


def _hook(path: Path) -> Hook | None:
    """That of a TOML file: `[notify]` with url and secret, as Standard Webhooks writes it.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("notify")
    if said is None:
        return None
    remedy = (
        f'write url = "https://..." and secret = "whsec_...", which are {SHORTEST_KEY} random bytes or more in base64'
    )
    try:
        url, key = said["url"], base64.b64decode(said["secret"].removeprefix("whsec_"), validate=True)
        parts = urlsplit(url)
        strange = said.keys() - {"url", "secret"}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"{path}: [notify] is not whole: {error}", remedy) from None
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    if strange or not secure or not parts.hostname or len(key) < SHORTEST_KEY:
        raise Invalid(f"{path}: [notify] makes no sense", remedy)
    return Hook(url, key)


def _probing(path: Path) -> Probing | None:
    """That of a TOML file: `[probing]` with a_day, and bytes and seconds if need be.

    :raises Invalid: naming the file, and what in it makes no sense
    """
    said = document(path).get("probing")
    if said is None:
        return None
    readers: dict[str, Callable[[object], Any]] = {"a_day": units.size, "bytes": units.size, "seconds": units.seconds}
    try:
        probing = Probing(**{name: readers[name](value) for name, value in said.items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = 'write a_day = "50 GB", and bytes = "64 MB" and seconds = 5 if you like'
        raise Invalid(f"{path}: [probing] makes no sense: {error}", remedy) from None
    if not probing.bytes or not 0 < probing.seconds <= 3600:
        raise Invalid(f"{path}: [probing] measures nothing", "give some bytes, and from 0.1 to 3600 seconds")
    return probing


def _names(said: Any) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _issuer(path: Path, said: Mapping[str, Any]) -> Issuer:
    remedy = 'write url = "https://...", audience = ["..."], roles = { "SCOPE" = "reader" }'
    try:
        names = _names(said["audience"])
        issuer = Issuer(said["url"], names, dict(said["roles"]), tuple(said.get("algorithms", ("RS256", "ES256"))))
        known = _names_people(issuer.url) and not said.keys() - set(Issuer._fields)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Invalid(f"{path}: an issuer is not whole: {error}", remedy) from None
    if not known or not names or not set(issuer.roles.values()) <= set(ROLES):
        raise Invalid(f"{path}: issuer {redact(issuer.url)} makes no sense", remedy)
    if strange := set(issuer.algorithms) - set(ASYMMETRIC):
        raise Invalid(f"{path}: algorithm {', '.join(sorted(strange))} is refused", f"use {', '.join(ASYMMETRIC)}")
    return issuer
