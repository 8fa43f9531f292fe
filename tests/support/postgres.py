"""A PostgreSQL server for tests, from Debian's packages: with a socket in a directory, removed when the tests end."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

__all__ = ["Postgres", "named", "postgres"]

PROGRAMS = Path("/usr/lib/postgresql")
MEMORY = Path("/dev/shm")
ROOM = 2 << 30
"""Free memory in bytes required to keep the data in memory, where databases are created three times as fast."""
NOBODY = "nobody"
"""User of the server if the tests run as root; the server refuses to run as root."""
SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # acknowledged data survive a crash of the server, but not of the machine
    "full_page_writes": "off",
    "max_connections": "200",
}


END = 'cat; "$@" > /dev/null 2>&1; rm -rf "$0"'
"""A shell script that waits until its standard input is closed, then ends the server and removes its directory."""


class Postgres:
    """A running server.

    :param socket: directory of its socket
    :param user: name of its superuser
    :param again: function that stops the server abruptly and starts it again
    """

    def __init__(self, socket: Path, user: str, again: Callable[[], None]) -> None:
        self._socket = socket
        self._user = user
        self._again = again
        self._made = 0
        self._connection: psycopg.Connection[Any] | None = None

    def url(self, name: str) -> str:
        """Return the URL of a database in SQLAlchemy's form."""
        return f"postgresql+psycopg://{self._user}@/{name}?host={self._socket}"

    def create(self, template: str = "template1") -> str:
        """Create a database; return its URL."""
        self._made += 1
        name = f"test_{self._made}"
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")  # takes half as long as WAL_LOG
        return self.url(name)

    def drop(self, url: str) -> None:
        """Remove a database; thousands of them would fill the disk, and take a minute to remove at the end."""
        self._run(f"DROP DATABASE {named(url)} WITH (FORCE)")

    def crash(self) -> None:
        """Stop the server abruptly, as in a crash, and start it again."""
        self.close()
        self._again()

    def close(self) -> None:
        """Close this object's own connection to the server."""
        if self._connection:
            self._connection.close()
        self._connection = None

    def _run(self, statement: str) -> None:
        if not self._connection:
            where = f"host={self._socket} user={self._user} dbname=postgres"
            self._connection = psycopg.connect(where, autocommit=True)
        self._connection.execute(statement)


def named(url: str) -> str:
    """Return the name of the database in a URL from `Postgres.url`."""
    return url.partition("@/")[2].partition("?")[0]


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start a server in a new directory. If PostgreSQL is not installed, skip the test, or fail it in CI."""
    versions = sorted(PROGRAMS.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not versions:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed: scripts/setup installs it")
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    programs = versions[-1].parent
    user = NOBODY if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    in_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > ROOM
    folder = Path(tempfile.mkdtemp(prefix="coget-postgres-", dir=MEMORY if in_memory else None))
    if os.geteuid() == 0:
        shutil.chown(folder, user)

    as_user = ["setpriv", f"--reuid={user}", "--clear-groups"] if os.geteuid() == 0 else []

    def run(program: str, *words: str) -> None:
        subprocess.run([*as_user, programs / program, *words], check=True, stdout=subprocess.DEVNULL, cwd=folder)

    data = str(folder / "data")
    options = " ".join(f"-c {name}={value!r}" for name, value in SETTINGS.items())
    stop = [*as_user, programs / "pg_ctl", "stop", "--mode=immediate", "-D", data]
    with subprocess.Popen(
        ["sh", "-c", END, folder, *stop], stdin=subprocess.PIPE, cwd="/", start_new_session=True
    ):  # the end of the block closes the pipe, and waits
        run("initdb", "--no-sync", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", f"--username={user}", data)
        start = ("--wait", "-D", data, "-l", str(folder / "log"), "-o", f"{options} -k {folder}")
        run("pg_ctl", "start", *start)
        with closing(Postgres(folder, user, lambda: run("pg_ctl", "restart", "--mode=immediate", *start))) as running:
            yield running
