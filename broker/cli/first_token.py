"""Delivery of the first admin token to a terminal, or to a file with mode 0600, since others may read the logs."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from sqlalchemy import make_url

from broker.errors import BrokerError

__all__ = ["handed_over"]

SUFFIX = "admin-token"


@contextmanager
def handed_over(database: str) -> Iterator[Callable[[str], None]]:
    """Yield a function that delivers a token. A token file is created before the block, and removed if the block fails.

    :param database: address of the database; the file is beside a SQLite file, otherwise in the state directory
    :raises BrokerError: when the file cannot be created; the remedy names other ways to get a token
    """
    if sys.stderr.isatty():
        yield lambda token: click.echo(f"The first admin token, shown only now: {token}", err=True)
        return
    path = _place(database)
    try:
        descriptor, path = _created(path)
    except OSError as error:
        raise BrokerError(
            f"cannot write the first admin token to {path}: {error.strerror}",
            "make its directory writable or set XDG_STATE_HOME, or run: coget-broker upgrade; "
            "coget-broker token create NAME --role admin",
        ) from None

    def hand_over(token: str) -> None:
        file.write(f"{token}\n")
        file.flush()
        os.fsync(file.fileno())
        click.echo(f"The first admin token is in the file {path}", err=True)

    with open(descriptor, "w", encoding="ascii") as file:
        try:
            yield hand_over
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def _place(database: str) -> Path:
    """Return the path of the token file: beside the SQLite file, otherwise in the state directory."""
    name = make_url(database).database if database.startswith("sqlite") else None
    if name and name != ":memory:":
        return Path(f"{Path(name).absolute()}.{SUFFIX}")
    state = os.environ.get("STATE_DIRECTORY", "").partition(":")[0]  # set by systemd; there may be several
    if state:
        return Path(state) / f"coget-broker.{SUFFIX}"
    home = os.environ.get("XDG_STATE_HOME") or f"{os.environ.get('HOME') or '.'}/.local/state"
    return Path(home).absolute() / "coget" / f"coget-broker.{SUFFIX}"


def _created(path: Path) -> tuple[int, Path]:
    """Create a file with mode 0600; return its descriptor and path.

    An existing file may hold another database's token: then the new file's name gets a random suffix.

    :raises OSError: when it cannot be created
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600), path
    except FileExistsError:
        path = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        return os.open(path, flags, 0o600), path
