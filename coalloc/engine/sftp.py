"""SFTP by fsspec and paramiko, only to servers whose host keys the user or the system knows.

Known keys are read from OpenSSH's files, including hashed names, patterns and revoked keys. Host certificates are not
read.
"""

import base64
import hashlib
import shlex
from collections.abc import Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import paramiko
from fsspec.implementations.sftp import SFTPFileSystem
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from coalloc.errors import PermissionRefused

__all__ = ["KnownHostsSFTP"]

FILES = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2", "/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
PORT = 22
REVOKED = "@revoked"


class KnownKey(NamedTuple):
    """The key in a line of a known_hosts file about the host."""

    revoked: bool
    key: Any


class KnownHostsSFTP(SFTPFileSystem):  # type: ignore[misc]
    """A file system of one server. An unknown host key ends the connection before anything is sent.

    :raises PermissionRefused: when the key is unknown, differs from the known one, or is revoked
    """

    @staticmethod
    def _get_kwargs_from_urls(urlpath: str) -> dict[str, Any]:
        parts = urlsplit(urlpath)
        login = {"port": parts.port, "username": parts.username, "password": parts.password}
        # fsspec's own function would keep brackets and capitals of the host, which the files do not have
        return {"host": parts.hostname or "", **{key: value for key, value in login.items() if value}}

    def _connect(self) -> None:
        port = self.ssh_kwargs.get("port") or PORT
        name = self.host if port == PORT else f"[{self.host}]:{port}"
        known = list(_known(name))
        revoked = [each.key for each in known if each.revoked]
        good = [each.key for each in known if not each.revoked and each.key not in revoked]
        refusing = _Refusing(_Server(name, self.host, port), good, revoked)
        try:
            self.client = self._connected(name, good, refusing)
        except paramiko.BadHostKeyException as error:
            if error.key not in good:
                refusing.refuse(error.key)
            self.client = self._connected(name, [error.key], refusing)  # the host has several keys of this type
        self.ftp = self.client.open_sftp()

    def _connected(self, name: str, keys: list[Any], refusing: "_Refusing") -> paramiko.SSHClient:
        client = paramiko.SSHClient()
        for key in keys:
            client.get_host_keys().add(name, key.get_name(), key)
        client.set_missing_host_key_policy(refusing)
        try:
            client.connect(self.host, **self.ssh_kwargs)
        except BaseException:
            client.close()
            raise
        return client


class _Server(NamedTuple):
    """A server: its name in known_hosts files, and its host and port for `ssh`."""

    name: str
    host: str
    port: int

    @property
    def words(self) -> str:
        """The last arguments of an `ssh` command that connects to the server."""
        return shlex.join([*(() if self.port == PORT else ("-p", str(self.port))), self.host])


class _Refusing:
    """A policy of paramiko that refuses a server by its host key, with a remedy for the user."""

    def __init__(self, server: _Server, good: list[Any], revoked: list[Any]) -> None:
        self._server, self._good, self._revoked = server, good, revoked

    def missing_host_key(self, client: paramiko.SSHClient, hostname: str, key: Any) -> None:
        self.refuse(key)

    def refuse(self, key: Any) -> None:
        """Refuse the key, with a remedy.

        :raises PermissionRefused: always
        """
        server = self._server
        digest = base64.b64encode(hashlib.sha256(key.asbytes()).digest()).decode().rstrip("=")
        host_key = f"{server.name}: its host key, {key.get_name()} SHA256:{digest},"
        accept = f"ssh {server.words}, or: ssh-keyscan {server.words} >> ~/.ssh/known_hosts"
        if key in self._revoked:
            raise PermissionRefused(f"{host_key} is revoked in known_hosts", "use another replica, and tell its admin")
        if self._good:
            raise PermissionRefused(
                f"{host_key} is not the known one: its admin has changed it, or another server answers in its place",
                f"ask its admin; if the key was changed, remove the old one: ssh-keygen -R {shlex.quote(server.name)}, "
                f"and accept the new one: {accept}",
            )
        raise PermissionRefused(
            f"{host_key} is not known",
            f"compare this fingerprint with the one from its admin, then accept the key: {accept}",
        )


def _known(name: str) -> Iterator[KnownKey]:
    """Yield the entries about a host in the files of the user and of the system.

    :param name: the host in the form of the files: HOST, or [HOST]:PORT
    """
    for path in FILES:
        try:
            lines = Path(path).expanduser().read_text(errors="replace").splitlines()
        except (OSError, RuntimeError):  # no such file; or no home directory
            continue
        for line in lines:
            marker = line.split()[0] if line.startswith("@") else ""
            names, kind, key, *_ = [*line.removeprefix(marker).split(), "", "", ""]
            if marker in ("", REVOKED) and _matches(name, names):
                with suppress(paramiko.SSHException, InvalidHostKey, ValueError):
                    entry = HostKeyEntry.from_line(f"{name} {kind} {key}")
                    if entry and entry.key:
                        yield KnownKey(marker == REVOKED, entry.key)


def _matches(name: str, names: str) -> bool:
    """Return whether a line's list of names includes the host: a pattern matches, and no pattern with '!' does."""
    if names.startswith("|1|"):
        return bool(paramiko.HostKeys.hash_host(name, names) == names)
    found = False
    for each in names.lower().split(","):
        # In these files, brackets enclose a host with a port, and are not patterns.
        if fnmatchcase(name, each.lstrip("!").replace("[", "[[]")):
            if each.startswith("!"):
                return False
            found = True
    return found
