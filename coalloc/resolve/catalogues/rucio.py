"""Rucio: the Metalink of a file or dataset by its server, whose address and login are in rucio.cfg.

The Metalink of a dataset leaves out the files without an available replica, so its list of files is read, too.
`rucio_traces` tells the server what was fetched.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser
from configparser import Error as ConfigError
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlsplit

from coalloc.credentials.known import is_protected
from coalloc.credentials.origins import WebOrigin
from coalloc.errors import NothingToFetchFrom, PermissionRefused, TooMuch, UsageError
from coalloc.model.replicas import ReplicaSet, TraceTarget
from coalloc.resolve import metalink
from coalloc.resolve.catalogues.documents import DocumentReader, mapping, size_of, text
from coalloc.resolve.file_names import why_unsafe
from coalloc.resolve.http_documents import METALINKS
from coalloc.resolve.replica_urls import admitted
from coalloc.util.concurrency import gather

__all__ = ["files_of"]

MOST_FILES = 100_000
"""Maximum number of files of a dataset."""
CONFIGURE = "write rucio_host, auth_type and account into rucio.cfg, and set RUCIO_CONFIG to its path"


class Login(NamedTuple):
    """The settings of Rucio's client that matter here; `path` is their file."""

    path: Path
    host: str
    auth_host: str
    kind: str
    account: str
    username: str
    password: str
    token_file: str


class SecretHeaders:
    """Headers with secrets, which no message shows, for requests that get no other credential.

    `names` are those of the headers, in lower case; `secrets` are their values.
    """

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers
        self.names: Sequence[str] = [name.lower() for name in headers]
        self.secrets: Iterable[str] = headers.values()

    def sign(self, method: str) -> Mapping[str, str]:
        """Return the headers."""
        return self._headers


async def files_of(source: str, reader: DocumentReader) -> list[ReplicaSet]:
    """Return the file of a Rucio name, or the files of a dataset or container.

    :raises UsageError: if the name is malformed, or Rucio is not configured
    :raises TooMuch: if there are more than `MOST_FILES`
    :raises NothingToFetchFrom: if the Metalink has a file that the list of files lacks
    :raises SourceError: if the server does not answer, refuses the login, or does not know the name
    """
    scope, colon, name = source.partition(":")[2].partition(":")
    if not (scope and colon and name):
        raise UsageError(f"{source[:200]!r} is not a Rucio name", "write it as rucio:SCOPE:NAME")
    if not (reader.credentials and reader.credentials.own):
        raise PermissionRefused(
            f"{source[:200]}: your login at Rucio may not be used here", "give the URLs of the file"
        )
    login = _login()
    try:
        signer = SecretHeaders({"X-Rucio-Auth-Token": await _token(login, reader)})
        did = f"{quote(scope, safe='')}/{quote(name, safe='')}"
        answer, listed = await gather(
            reader.fetched(f"{login.host}/replicas/{did}", {"Accept": METALINKS[0]}, signer),
            reader.fetched(f"{login.host}/dids/{did}/files", {"Accept": "application/x-json-stream"}, signer),
        )
    except PermissionRefused as error:
        raise PermissionRefused(error.message, _how_to_log_in(login)) from None
    following = reader.after(answer)
    found = {file.name: file for file in metalink.read(answer.content, source, catalogue=True)}
    files = []
    for own_scope, own_name, size in _listed(listed.content, source):
        path = own_name.removeprefix("/")
        file = found.get(path) or ReplicaSet(path, (), size)
        if not file.replicas:
            file = file._replace(left_out=(("Rucio", "it has no available replica"),))
        fields: tuple[tuple[str, str], ...] = (("account", login.account), ("scope", own_scope), ("filename", own_name))
        if own_scope != scope or own_name != name:
            fields += (("datasetScope", scope), ("dataset", name))
        vouched = answer.secure and bool(file.checksums)
        trace = TraceTarget(f"{login.host}/traces/", fields)
        files.append(admitted(file, following.origin)._replace(vouched=vouched, trace=trace))
    if len({file.name for file in files}) < len(files):
        raise UsageError(f"{source[:200]} has two files of the same name", "fetch its files one by one")
    if unlisted := sorted(found.keys() - {file.name for file in files}):
        raise NothingToFetchFrom(
            f"{source[:200]}: Rucio names a copy of {unlisted[0][:200]!r}, but does not list this file",
            "try again later: the dataset may be changing",
        )
    return files


def _listed(content: bytes, source: str) -> Iterable[tuple[str, str, int | None]]:
    """Yield scope, name and size of each file, of one JSON object a line.

    :raises NothingToFetchFrom: if it is not JSON
    :raises UsageError: if a name is harmful
    :raises TooMuch: if there are too many
    """
    lines = content.splitlines()
    if len(lines) > MOST_FILES:
        raise TooMuch(f"{source[:200]} has more than {MOST_FILES:,} files", "fetch its datasets one by one")
    for line in lines:
        try:
            entry = mapping(json.loads(line))
        except (ValueError, RecursionError):
            raise NothingToFetchFrom(f"{source[:200]}: Rucio does not answer with JSON", "try again later") from None
        scope, name = text(entry.get("scope")), text(entry.get("name"))
        if reason := why_unsafe(name.removeprefix("/")):
            raise UsageError(f"the file name {name[:200]!r} of Rucio {reason}", "fetch the other files one by one")
        yield scope, name, size_of(entry.get("bytes"))


def _how_to_log_in(login: Login) -> str:
    """Return the remedy for a refused login."""
    if login.token_file:
        return f"the token in {login.token_file} may have expired: log in with rucio whoami"
    if login.kind == "userpass":
        return f"check account, username and password in {login.path}"
    return f"check account in {login.path}, and that your certificate (X509_USER_PROXY) is valid and known to Rucio"


def _login() -> Login:
    """Return the settings of rucio.cfg and of the variables that take precedence.

    :raises UsageError: if there are none, or they cannot be used
    """
    home = os.environ.get("RUCIO_HOME", "/opt/rucio")
    path = Path(os.environ.get("RUCIO_CONFIG") or f"{home}/etc/rucio.cfg")
    parser = ConfigParser(interpolation=None)
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
        client = dict(parser["client"])
    except OSError as error:
        raise UsageError(f"cannot read the settings of Rucio in {path}: {error.strerror}", CONFIGURE) from None
    except (ConfigError, KeyError, ValueError):
        raise UsageError(f"{path} is not a rucio.cfg with a section [client]", CONFIGURE) from None
    host = client.get("rucio_host", "").rstrip("/")
    auth = client.get("auth_host", host).rstrip("/")
    for url in (host, auth):
        if not _is_protected(url):
            raise UsageError(f"{path} names no https:// server for rucio_host and auth_host", CONFIGURE)
    return Login(
        path,
        host,
        auth,
        os.environ.get("RUCIO_AUTH_TYPE") or client.get("auth_type", ""),
        os.environ.get("RUCIO_ACCOUNT") or client.get("account", ""),
        client.get("username", ""),
        client.get("password", ""),
        client.get("auth_token_file_path", ""),
    )


def _is_protected(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https") and is_protected(WebOrigin.of(url))
    except ValueError:
        return False


async def _token(login: Login, reader: DocumentReader) -> str:
    """Return the token for requests: the one in the token file, which Rucio's client keeps, or that of a login.

    :raises UsageError: if there is no way to get one
    :raises SourceError: if the login is refused
    """
    if login.token_file:
        return _valid(_read(Path(login.token_file)), login)
    secret, certified = {"X-Rucio-Username": login.username, "X-Rucio-Password": login.password}, False
    match login.kind:
        case "userpass":
            pass
        case "x509_proxy" | "x509":
            secret, certified = {}, True  # the certificate identifies the user
        case _:
            raise UsageError(
                f"coget cannot log in to Rucio by auth_type = {login.kind or 'nothing'!r}",
                "use userpass or x509_proxy; or log in with rucio whoami, and set auth_token_file_path in rucio.cfg",
            )
    if not all(value.isprintable() and value.isascii() for value in (login.account, *secret.values())):
        raise UsageError("account, username or password in rucio.cfg cannot be sent in a header", CONFIGURE)
    asking = replace(reader, credentials=reader.credentials and reader.credentials.for_certificates())
    url, headers = f"{login.auth_host}/auth/{login.kind}", {"X-Rucio-Account": login.account}
    answer = await asking.fetched(url, headers, None if certified else SecretHeaders(secret))
    return _valid(answer.headers.get("x-rucio-auth-token", ""), login)


def _read(path: Path) -> str:
    try:
        with path.expanduser().open(encoding="ascii", errors="replace") as file:
            return file.read(65_536).strip()
    except (OSError, ValueError, RuntimeError):  # RuntimeError: no home directory is known
        raise UsageError(f"cannot read {str(path)!r}", "log in with: rucio whoami") from None


def _valid(token: str, login: Login) -> str:
    if not token or not token.isascii() or not token.isprintable():
        raise PermissionRefused(
            f"{urlsplit(login.auth_host).netloc}: Rucio gave no valid token", "log in with: rucio whoami"
        )
    return token
