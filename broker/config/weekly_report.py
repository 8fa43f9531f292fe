"""The settings of the weekly report: its directory, and its mail server and recipients."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from broker.errors import Invalid
from coalloc.util.secret_files import read_secret

__all__ = ["LOOPBACK", "Mail", "Posting", "posting"]

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Names of this machine, to which passwords may be sent unencrypted."""
SUBMISSION = 587
KINDS = {
    "directory": str,
    "to": list,
    "sender": str,
    "smtp": str,
    "starttls": bool,
    "user": str,
    "password_file": str,
}
"""The settings, with their types."""
NAMES = {str: "a string", list: "a list", bool: "true or false"}
REMEDY = 'write directory = "/srv/reports", or to = ["ann@x.example"], sender = "me@x.example", smtp = "mail.x.example"'


class Mail(NamedTuple):
    """The settings for reports by mail.

    :param to: recipients' addresses
    :param sender: sender's address
    :param starttls: whether to verify the server and encrypt the connection before the login and the mail
    :param user: user name at the server; empty for no login
    """

    to: tuple[str, ...]
    sender: str
    host: str
    port: int
    starttls: bool
    user: str
    password: str


class Posting(NamedTuple):
    """The destination of the weekly report.

    :param directory: directory for the files; None for no files
    :param mail: settings for mail; None for no mail
    """

    directory: Path | None
    mail: Mail | None


def posting(path: Path, entries: Mapping[str, Any] | None) -> Posting | None:
    """Return `[report]` of a TOML file, None if it is missing.

    Keys: directory, or to, sender and smtp, or all; with smtp, optionally starttls, user and password_file.

    :raises Invalid: naming the file and the invalid entry
    """
    if entries is None:
        return None
    strange = entries.keys() - KINDS.keys()
    if missing := {"to", "sender", "smtp"} - entries.keys() if "to" in entries else set():
        raise Invalid(f"{path}: [report] has no {', '.join(sorted(missing))}", REMEDY)
    if strange or not entries.keys() & {"directory", "to"}:
        raise Invalid(f"{path}: invalid [report]: {', '.join(strange) or 'it has no destination'}", REMEDY)
    for key, value in entries.items():
        if not isinstance(value, KINDS[key]):
            raise Invalid(f"{path}: invalid [report]: {key} is not {NAMES[KINDS[key]]}", REMEDY)
    try:
        directory = path.parent / entries["directory"] if "directory" in entries else None
        return Posting(directory, _mail(path, entries) if "to" in entries else None)
    except ValueError as error:
        raise Invalid(f"{path}: invalid [report]: {error}", REMEDY) from None


def _mail(path: Path, entries: Mapping[str, Any]) -> Mail:
    host, _, port = (
        entries["smtp"].rpartition(":") if ":" in entries["smtp"] else (entries["smtp"], "", str(SUBMISSION))
    )
    host = host.strip("[]")
    starttls = entries.get("starttls", host not in LOOPBACK)
    mail = Mail(
        to=tuple(map(_address, entries["to"])),
        sender=_address(entries["sender"]),
        host=host,
        port=int(port),
        starttls=starttls,
        user=entries.get("user", ""),
        password=_password(path, entries),
    )
    if not mail.to or not host:
        raise ValueError("to has no address, or smtp no host")
    if mail.user and not starttls and host not in LOOPBACK:
        raise ValueError("without starttls the password would be sent unencrypted")
    return mail


def _address(address: object) -> str:
    if not isinstance(address, str):
        raise ValueError(f"{address} is not an address")
    name, at, domain = address.partition("@")
    if not (name and at and domain) or not address.isprintable() or set(address) & set(" ,;<>"):
        raise ValueError(f"{address} is not an address")
    return address


def _password(path: Path, entries: Mapping[str, Any]) -> str:
    if ("user" in entries) != ("password_file" in entries):
        raise ValueError("user and password_file belong together")
    if "password_file" not in entries:
        return ""
    file: Path = path.parent / entries["password_file"]
    try:
        return read_secret(file)
    except OSError as error:
        raise ValueError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"cannot use {file}: {error}") from None
