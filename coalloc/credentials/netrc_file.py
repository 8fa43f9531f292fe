"""Users and passwords by host, in the file that ftp and curl use: NETRC, else ~/.netrc."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from coalloc.credentials.origins import ascii_host
from coalloc.credentials.private_files import UnusableFile, read_private

__all__ = ["NetrcFile", "NetrcLogin", "parse_netrc", "read_netrc"]

WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\S+')


@dataclass(frozen=True)
class NetrcLogin:
    """User and password for a host."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True)
class NetrcFile:
    """The logins of a file by host, or the reason why it cannot be used."""

    path: Path
    logins: Mapping[str, NetrcLogin]
    problem: str = ""


def read_netrc() -> NetrcFile:
    """Return the user's file; it has no logins if there is none."""
    path = Path(os.environ.get("NETRC") or Path(os.environ.get("HOME") or "/nonexistent", ".netrc"))
    try:
        return NetrcFile(path, parse_netrc(read_private(path, named=True)))
    except FileNotFoundError:
        return NetrcFile(path, {})
    except UnusableFile as error:
        return NetrcFile(path, {}, str(error))
    except OSError as error:
        return NetrcFile(path, {}, f"it cannot be read: {error.strerror}")


def parse_netrc(text: str) -> dict[str, NetrcLogin]:
    r"""Return the logins by host, the first one of each. `default`, which names no host, is left out.

    >>> parse_netrc("machine A.example login ann password hush # mine\ndefault login anonymous password x@y\n")
    {'a.example': NetrcLogin(user='ann')}
    """
    found: dict[str, NetrcLogin] = {}
    host, fields = "", dict[str, str]()

    def add() -> None:
        if host and "password" in fields:
            found.setdefault(host, NetrcLogin(fields.get("login", ""), fields["password"]))

    words = _words(text)
    for word in words:
        if word in ("machine", "default"):
            add()
            host, fields = _machine(_next(words)) if word == "machine" else "", {}
        elif word in ("login", "user", "password", "account"):
            fields.setdefault("login" if word == "user" else word, _next(words))
        elif word.startswith("#"):  # a comment; the value of a password may begin so, too
            while word not in ("\n", ""):
                word = next(words, "")
    add()
    return found


def _machine(name: str) -> str:
    try:
        return ascii_host(name)
    except ValueError:  # no server has this name
        return ""


def _next(words: Iterator[str]) -> str:
    return next((word for word in words if word != "\n"), "")


def _words(text: str) -> Iterator[str]:
    """Yield the words of a file, and its line ends; leave out macros, which extend to the next empty line."""
    for paragraph in re.split(r"\n[ \t]*\n", text):
        for line in re.split(r"(?m)^\s*macdef\s", paragraph)[0].splitlines():
            for word in WORD.findall(line):
                quoted = len(word) > 1 and word[0] == word[-1] == '"'
                yield re.sub(r"\\(.)", r"\1", word[1:-1]) if quoted else word
            yield "\n"
