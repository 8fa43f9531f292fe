"""The settings of the broker, from the command line and a TOML file."""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from broker.config.credentials import CollectionCredential, credentials
from broker.config.document import document
from broker.config.identity_providers import (
    IntrospectionSettings,
    Issuer,
    ProviderSettings,
    introspection,
    issuers,
    provider,
    texts,
)
from broker.config.weekly_report import LOOPBACK, Posting, posting
from broker.errors import Invalid
from broker.models.subjects import Usernames
from coalloc.planner.documents import units
from coalloc.util.addresses import Network, parse_networks

__all__ = [
    "LOOPBACK",
    "Hook",
    "Probing",
    "Settings",
    "Strategy",
    "configured",
]

Strategy = Literal["priority", "predicted", "distance", "random"]

SHORTEST_KEY = 24


class Hook(NamedTuple):
    """A webhook that is called when tasks end.

    :param key: key that signs the calls
    """

    url: str
    key: bytes


class Probing(NamedTuple):
    """The limits for measurements of links between endpoints, which run only while no task runs.

    :param a_day: bytes of all measurements of one day
    :param bytes: bytes of one measurement
    :param seconds: duration of one measurement
    """

    a_day: int
    bytes: int = 64_000_000
    seconds: float = 5.0


class Settings(NamedTuple):
    """The settings of one broker; the defaults suit most sites.

    :param database: address of the database, as in SQLAlchemy
    :param anonymous: whether callers without a token may read
    :param ranking: criteria that order replicas: each decides if the earlier ones are equal or unknown
    :param explore: N: at most one answer in N puts a replica with an unmeasured link first; 0 is never
    :param keep_days: days from the end of a transfer to its deletion; None is never
    :param issuers: issuers whose signed tokens are accepted, in addition to the broker's own
    :param introspection: service that describes other tokens
    :param hook: webhook that is called when tasks end
    :param requests_per_second: average rate of requests that one caller may send
    :param largest_body: largest request body in bytes, except for imports
    :param added_per_hour: transfers and dataset names that one user may add per hour
    :param site: site of this process, which accesses directories of this site's collections directly
    :param probing: cost limits of measurements of links; None for no measurements
    :param credentials: proxy certificates and the directories where they are used, by the names that collections use
    :param posting: destination of the weekly report
    :param proxies: networks of the proxies that are trusted to report the client's address; empty for none
    :param network: private and loopback addresses that endpoints of all users may have
    :param via: routes over depots for data of tasks between servers
    :param copy_unverified: whether tasks that verify checksums also copy files that cannot be verified
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
    credentials: Mapping[str, CollectionCredential] = MappingProxyType({})
    public_url: str = ""
    provider: ProviderSettings | None = None
    introspection: IntrospectionSettings | None = None
    hook: Hook | None = None
    probing: Probing | None = None
    posting: Posting | None = None
    proxies: tuple[str, ...] = ()
    network: tuple[Network, ...] = ()
    copy_unverified: bool = False
    via: tuple[str, ...] = ()

    @property
    def domain(self) -> str:
        """The domain of user names without a domain."""
        return urlsplit(self.public_url).hostname or "localhost"

    @property
    def namers(self) -> tuple[tuple[str, str | None], ...]:
        """The URLs that subjects' names contain, each with its issuer; None for an unknown issuer."""
        signing = tuple((each.url, each.url) for each in self.issuers)
        introspection = self.introspection
        return (*signing, (introspection.url, introspection.issuer or None)) if introspection else signing

    @property
    def usernames(self) -> Usernames:
        """The user names of subjects."""
        return Usernames.among(self.domain, (issuer or url for url, issuer in self.namers))


def configured(settings: Settings, path: Path) -> Settings:
    """Return the settings, overridden by a TOML file.

    :raises Invalid: naming the file and the invalid entry
    """
    return settings._replace(
        issuers=issuers(path),
        provider=provider(path),
        credentials=credentials(path, document(path).get("credentials", {})),
        introspection=introspection(path),
        hook=_hook(path),
        probing=_probing(path),
        posting=posting(path, document(path).get("report")),
        network=_network(path),
        proxies=_proxies(path),
        copy_unverified=_copy_unverified(path),
        added_per_hour=_added_per_hour(path) or settings.added_per_hour,
    )


def _added_per_hour(path: Path) -> int | None:
    """Return `added_per_hour` in `[limits]` of a TOML file; None if it is not set.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("limits", {"added_per_hour": None})
    rows = entries["added_per_hour"] if isinstance(entries, dict) and entries.keys() == {"added_per_hour"} else 0
    if rows is not None and (type(rows) is not int or rows < 1):
        raise Invalid(f"{path}: invalid [limits]", "write [limits] and added_per_hour = 2000000")
    return rows


def _copy_unverified(path: Path) -> bool:
    """Return `copy_unverified` in `[transfers]` of a TOML file; False if it is not set.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("transfers", {})
    found = (
        entries.get("copy_unverified", False)
        if isinstance(entries, dict) and entries.keys() <= {"copy_unverified"}
        else None
    )
    if not isinstance(found, bool):
        raise Invalid(f"{path}: invalid [transfers]", "write [transfers] and copy_unverified = true")
    return found


def _proxies(path: Path) -> tuple[str, ...]:
    """Return the networks of trusted proxies: `trusted` in `[proxy]` of a TOML file.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("proxy", {})
    remedy = 'write [proxy] and trusted = ["127.0.0.1", "192.0.2.0/24"]'
    try:
        if strange := entries.keys() - {"trusted"}:
            raise ValueError(f"{', '.join(sorted(strange))} is unknown")
        return tuple(str(ipaddress.ip_network(each)) for each in texts("trusted", entries.get("trusted", [])))
    except ValueError as error:
        raise Invalid(f"{path}: invalid [proxy]: {error}", remedy) from None


def _network(path: Path) -> tuple[Network, ...]:
    """Return the networks in `[network]` of a TOML file, a list named `allow`.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("network")
    if entries is None:
        return ()
    remedy = 'write allow = ["10.0.0.0/8", "fd00:1::/48"]; link-local ones are never allowed'
    try:
        (allowed,) = [entries["allow"]] if entries.keys() == {"allow"} and isinstance(entries["allow"], list) else []
        return parse_networks(allowed)
    except (AttributeError, ValueError) as error:
        raise Invalid(f"{path}: invalid [network]: {error}", remedy) from None


def _hook(path: Path) -> Hook | None:
    """Return `[notify]` of a TOML file, with url and a secret in the format of Standard Webhooks.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("notify")
    if entries is None:
        return None
    remedy = (
        f'write url = "https://..." and secret = "whsec_...", which are {SHORTEST_KEY} random bytes or more in base64'
    )
    try:
        if strange := sorted(entries.keys() - {"url", "secret"}):
            raise ValueError(f"{', '.join(strange)} is unknown")
        return Hook(_hook_url(entries["url"]), _hook_key(entries["secret"]))
    except KeyError as error:
        raise Invalid(f"{path}: [notify] has no {error.args[0]}", remedy) from None
    except ValueError as error:
        raise Invalid(f"{path}: invalid [notify]: {error}", remedy) from None


def _hook_url(url: object) -> str:
    try:
        parts = urlsplit(url if isinstance(url, str) else "")
        usable = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK)
    except ValueError:
        usable = False
    if not isinstance(url, str) or not usable or not parts.hostname:
        raise ValueError("url is not https://..., or http://... on this machine")
    return url


def _hook_key(secret: object) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True) if isinstance(secret, str) else b""
    except ValueError:
        key = b""
    if len(key) < SHORTEST_KEY:
        raise ValueError(f"secret is not base64 of {SHORTEST_KEY} bytes or more")
    return key


def _probing(path: Path) -> Probing | None:
    """Return `[probing]` of a TOML file, with a_day, and optionally bytes and seconds.

    :raises Invalid: naming the file and the invalid entry
    """
    entries = document(path).get("probing")
    if entries is None:
        return None
    readers: dict[str, Callable[[object], Any]] = {"a_day": units.size, "bytes": units.size, "seconds": units.seconds}
    try:
        probing = Probing(**{name: readers[name](value) for name, value in entries.items()})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        remedy = 'write a_day = "50 GB", and optionally bytes = "64 MB" and seconds = 5'
        raise Invalid(f"{path}: invalid [probing]: {error}", remedy) from None
    if not probing.bytes or not 0 < probing.seconds <= 3600:
        raise Invalid(f"{path}: [probing] measures nothing", "give some bytes, and from 0.1 to 3600 seconds")
    return probing
