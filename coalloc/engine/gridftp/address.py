"""Parser of GridFTP and FTP URLs: host, port, user, path. No I/O.

Paths are as in the Globus world: `ftp://host/a/b` is the absolute path /a/b (in RFC 1738 it is relative to the
login directory), `ftp://host/~/b` is b in the login directory.

`ftps://` begins with TLS (implicit, port 990), as for curl, lftp, WinSCP and FileZilla; at port 21, where no server
does that, it means the same as `ftpes://`, which asks for TLS by AUTH TLS (explicit).
"""

import re
from dataclasses import dataclass, field
from typing import Literal, Self
from urllib.parse import quote, unquote, urlsplit

from coalloc.errors import Unsupported, UsageError

__all__ = ["ANONYMOUS", "Address", "parse", "parse_server"]

PORTS = {"ftp": 21, "ftpes": 21, "ftps": 990, "gsiftp": 2811}
WITH_TLS = ("ftps", "ftpes")
ANONYMOUS = "anonymous"
"""User of URLs that name none."""
UNSENDABLE = re.compile(r"[\0\r\n]")


@dataclass(frozen=True)
class Address:
    """A file at a server; `root` is the URL of the server without the login, for messages."""

    scheme: str
    host: str
    port: int
    path: str
    root: str
    user: str = ANONYMOUS
    password: str = field(default="coget@", repr=False)

    @property
    def shown(self) -> str:
        """The URL without the password, for messages."""
        return self.root + quote(self.named, safe="/~", errors="surrogateescape")

    @property
    def tls(self) -> Literal["implicit", "explicit"] | None:
        """The beginning of TLS on the control connection; None without TLS."""
        if self.scheme not in WITH_TLS:
            return None
        return "implicit" if self.scheme == "ftps" and self.port != PORTS["ftp"] else "explicit"

    def refuse_tls(self) -> None:
        """Refuse a server with TLS, for what coget does without TLS only.

        :raises Unsupported: when the URL means TLS
        """
        if self.tls:
            raise Unsupported(f"{self.root}: over {self.scheme}://, coget only reads files", "name a gsiftp:// URL")

    @property
    def named(self) -> str:
        """The path in the form for `at`: absolute, or `/~/` and a path from the login directory."""
        return self.path if self.path.startswith("/") else f"/~/{self.path}"

    def at(self, path: str) -> Self:
        """Return the address of another file for the same server and user.

        :param path: an absolute path, or `/~/` and a path from the login directory
        :raises UsageError: when `path` does not begin with a slash
        :raises Unsupported: when `path` contains a line break or NUL
        """
        if not path.startswith("/"):
            raise UsageError(f"{self.root}: {path!r} is not an absolute path", "begin it with / or /~/")
        other = type(self)(self.scheme, self.host, self.port, _path(path[1:]), self.root, self.user, self.password)
        other.refuse_unsendable()
        return other

    def refuse_unsendable(self) -> None:
        """Refuse a path that would end a command early.

        :raises Unsupported: when it contains a line break or NUL
        """
        if found := UNSENDABLE.search(self.path):
            what = "NUL character" if found[0] == "\0" else "line break"
            raise Unsupported(
                f"{self.shown}: GridFTP cannot name a file with a {what} in its name",
                "rename the file on the server, or use an http:// replica",
            )


def parse(url: str) -> Address:
    """Parse a URL and percent-decode its parts.

    :raises UsageError: when it is not a ftp://, ftps://, ftpes:// or gsiftp:// URL with a host and a path
    """
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    root = f"{scheme}://{authority.rpartition('@')[2]}"
    shown = f"{root}{slash}{path}"
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port
    except ValueError:
        raise UsageError(f"{shown}: invalid host or port", "write ftp://HOST:PORT/PATH") from None
    if scheme.lower() not in PORTS or not host or not path:
        raise UsageError(
            f"{shown} does not name a file on a GridFTP server", "write ftp://HOST/PATH or gsiftp://HOST/PATH"
        )
    login = {}
    if parts.username is not None:
        login = {"user": _decode(parts.username), "password": _decode(parts.password or "")}
    return Address(scheme.lower(), host, port or PORTS[scheme.lower()], _path(_decode(path)), root, **login)


def parse_server(url: str) -> Address:
    """Parse the server of a URL; the path of the result is the login directory.

    :raises UsageError: when it is not a ftp:// or gsiftp:// URL with a host
    """
    scheme, mark, rest = url.partition("://")
    return parse(f"{scheme}{mark}{rest.partition('/')[0]}/~/")


def _path(path: str) -> str:
    return (path[2:] or ".") if path.startswith("~/") else f"/{path}"


def _decode(text: str) -> str:
    return unquote(text, errors="surrogateescape")
