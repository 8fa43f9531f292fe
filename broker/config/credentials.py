"""Proxy certificates for collections, and the server directories where each is used: `[credentials]`.

    [credentials.robot]
    proxy = "/etc/coget/robot-proxy.pem"
    for = ["gsiftp://dtn1.example:2811/archive/"]

An entry may also be only the path of the file. The certificate is then used at the directories that an upgrade stored.
"""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from broker.errors import Invalid
from broker.models.catalogue import PORTS, Endpoint

__all__ = ["CollectionCredential", "ServerFolder", "at", "credentials", "place"]

REMEDY = 'write [credentials.NAME] with proxy = "/path/proxy.pem" and for = ["gsiftp://HOST:PORT/DIRECTORY/"]'


class ServerFolder(NamedTuple):
    """A directory of a server, in canonical spelling."""

    scheme: str
    host: str
    port: int
    folder: tuple[str, ...]

    def covers(self, other: "ServerFolder") -> bool:
        """Return whether another directory is this one or below it; False for a path with `..`."""
        inside = self[:3] == other[:3] and other.folder[: len(self.folder)] == self.folder
        return inside and ".." not in other.folder

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}/" + "".join(f"{part}/" for part in self.folder)


class CollectionCredential(NamedTuple):
    """A proxy certificate's file, and the directories where it is used; None for those in the database."""

    proxy: Path
    places: tuple[ServerFolder, ...] | None = None


def place(url: str) -> ServerFolder:
    """Return the server directory of a URL.

    >>> str(place("GSIFTP://DTN1.Example./a%20b//./c")), str(place("gsiftp://[0:0::1]:99"))
    ('gsiftp://dtn1.example:2811/a b/c/', 'gsiftp://[::1]:99/')

    :raises ValueError: when it is not the URL of a GridFTP server's directory
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    if scheme not in ("ftp", "gsiftp") or not parts.hostname or parts.username is not None:
        raise ValueError(f"{url} is not like gsiftp://HOST:PORT/DIRECTORY/")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise ValueError(f"{url} has more than a directory: write ? and # as %3F and %23")
    found = ServerFolder(scheme, _host(parts.hostname), parts.port or PORTS[scheme], _folder(unquote(parts.path)))
    if ".." in found.folder:
        raise ValueError(f"{url} contains '..'")
    return found


def at(endpoint: Endpoint, folder: str) -> ServerFolder:
    """Return a directory of an endpoint's server, given by its path from the server's root."""
    return ServerFolder(endpoint.scheme, _host(endpoint.host), endpoint.port or PORTS[endpoint.scheme], _folder(folder))


def _host(host: str) -> str:
    plain = host.strip("[]").rstrip(".").lower()
    try:
        return str(ip_address(plain))
    except ValueError:
        return plain


def _folder(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def credentials(path: Path, entries: object) -> dict[str, CollectionCredential]:
    """Read `[credentials]` of a TOML file.

    :raises Invalid: naming the file and the invalid entry
    """
    if not isinstance(entries, Mapping):
        raise Invalid(f"{path}: invalid [credentials]", REMEDY)
    return {name: _credential(path, name, each) for name, each in entries.items()}


def _credential(path: Path, name: str, entry: Any) -> CollectionCredential:
    if isinstance(entry, str):
        return CollectionCredential(path.parent / entry)
    try:
        if entry.keys() != {"proxy", "for"} or not isinstance(entry["proxy"], str):
            raise ValueError("it needs proxy and for")
        return CollectionCredential(path.parent / entry["proxy"], tuple(_places(entry["for"])))
    except (AttributeError, TypeError, ValueError) as error:
        raise Invalid(f"{path}: invalid [credentials.{name}]: {error}", REMEDY) from None


def _places(urls: Any) -> Iterable[ServerFolder]:
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise ValueError("for is not a list of URLs")
    return map(place, urls)
