"""Random histories of a file at real servers: replaced, gone, back, paused servers, killed `coget`.

Whatever happens, what gets the file's name is one version of it, whole; and when all is calm, the next runs get it.
"""

import hashlib
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from coalloc.schedule.policies import NAMES
from tests.faults.test_real_downloads import MIB, make_file, written
from tests.support.coget import coget, coget_process
from tests.support.effort import effort
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.seeds import tries
from tests.support.waiting import PATIENCE, wait_until

SIZE = 40 * MIB
SILENT = ("-disable-command-list", "CKSM")
"""A server without checksums: its replica cannot be compared."""
CALM_RUNS = 4
"""Runs within which the file arrives once nothing changes any more."""


class File:
    """A file at several servers, in its current version, except at servers with a corrupt one.

    :param corrupt: the servers whose file differs in a byte
    """

    def __init__(self, servers: list[GridFTPServer | Nginx], corrupt: set[int], home: Path) -> None:
        self.servers, self.corrupt = servers, corrupt
        self.home, self.paused, self.version = home, set[int](), 0
        self.versions = [make_file(home / f"version-{number}", SIZE, number) for number in range(3)]
        self._put()

    def replace(self) -> None:
        """Replace the file by its next version, everywhere at one moment."""
        if self.version + 1 == len(self.versions):
            return
        self.version += 1
        with self._standing_still():
            self._put()

    @contextmanager
    def _standing_still(self) -> Iterator[None]:
        running = [server for i, server in enumerate(self.servers) if i not in self.paused]
        for server in running:
            server.pause()
        yield
        for server in running:
            server.resume()

    def _put(self) -> None:
        for i, server in enumerate(self.servers):
            content = self.versions[self.version]
            new = server.root / "new"
            new.write_bytes(bytes([content[0] ^ 1]) + content[1:] if i in self.corrupt else content)
            modified = 1_700_000_000 + 60 * self.version
            os.utime(new, (modified, modified))
            new.replace(server.root / "big")

    def stand_still(self, i: int) -> None:
        self.paused.add(i)
        self.servers[i].pause()

    def go_on(self) -> None:
        """Let all paused servers continue."""
        while self.paused:
            self.servers[self.paused.pop()].resume()

    def remove(self, i: int) -> None:
        (self.servers[i].root / "big").unlink(missing_ok=True)

    def end_sessions(self, i: int) -> None:
        server = self.servers[i]
        if isinstance(server, GridFTPServer) and i not in self.paused:
            server.end_sessions()

    def happen(self, chance: random.Random) -> None:
        """Apply a random event to files or servers."""
        i = chance.randrange(len(self.servers))
        what = chance.choice(["replace", "replace", "replace", "stand still", "go on", "remove", "end sessions"])
        match what:
            case "replace":
                self.replace()
            case "stand still" if len(self.paused) + 1 < len(self.servers):
                self.stand_still(i)
            case "go on":
                self.go_on()
            case "remove":
                self.remove(i)
            case "end sessions":
                self.end_sessions(i)

    def calm(self) -> None:
        """Let all servers run, and have the current version."""
        self.go_on()
        self._put()


@pytest.fixture
def kinds(tmp_path: Path) -> Iterator[list[GridFTPServer | Nginx]]:
    """Servers with checksums, without, and web servers."""
    with ExitStack() as stack:
        kinds = [GridFTPServer(tmp_path / "a", "127.0.0.2"), GridFTPServer(tmp_path / "b", "127.0.0.3", options=SILENT)]
        kinds += [Nginx(tmp_path / "c", tmp_path / "run", more="limit_rate 40m;")]
        kinds += [GridFTPServer(tmp_path / "d", "127.0.0.4", options=SILENT)]
        yield [stack.enter_context(server) for server in kinds]


@pytest.mark.long
@pytest.mark.seeded
def test_published_file_is_one_version(kinds, tmp_path):
    for attempt in tries(effort(5, 60)):
        with attempt as seed:
            home = tmp_path / str(seed)
            home.mkdir()
            one_history(random.Random(seed), kinds, home)


def one_history(chance: random.Random, kinds: list[GridFTPServer | Nginx], home: Path) -> None:
    servers = chance.sample(kinds, chance.randint(1, 3))
    expected = chance.random() < 0.3
    corrupt = {0} if expected and len(servers) > 1 and chance.random() < 0.5 else set[int]()
    file = File(servers, corrupt, home)
    wanted = chance.choice(file.versions)
    checksum = ["--checksum", "sha256:" + hashlib.sha256(wanted).hexdigest()] if expected else []
    story = []

    def words() -> list[str]:
        some = chance.sample(servers, chance.randint(1, len(servers)))
        chosen = [server.url("big") for server in some]
        return [*chosen, "--strategy", chance.choice(NAMES), *checksum, "--quiet", "-o", "here"]

    def check(status: int, stderr: str) -> bool:
        story.append((status, stderr))
        there = home / "here"
        assert there.exists() == (status == 0), story
        if status:
            return False
        found = there.read_bytes()
        right = any(found == version for version in ([wanted] if expected else file.versions))
        assert right, f"no version of the file has these bytes: {story}"
        return True

    try:
        for _ in range(chance.randint(1, 3)):
            asked = words()
            story.append(asked)
            with coget_process(asked, home) as process:
                try:
                    suffer(chance, process, file, home / "here", story)
                    file.go_on()
                    _, stderr = process.communicate(timeout=PATIENCE)
                finally:
                    process.kill()
            if check(process.returncode, stderr):
                return
        if expected:  # only now is it certain to exist
            file.version = file.versions.index(wanted)
        file.calm()
        every = [server.url("big") for server in servers]
        for _ in range(CALM_RUNS):
            done = coget([*every, *checksum, "--quiet", "-o", "here"], home)
            if check(done.returncode, done.stderr):
                return
        raise AssertionError(f"not there after {CALM_RUNS} calm runs: {story}")
    finally:
        file.calm()
        for server in servers:
            file.remove(servers.index(server))


def suffer(
    chance: random.Random, process: "subprocess.Popen[str]", file: File, target: Path, story: list[object]
) -> None:
    """Apply events when these amounts have arrived, perhaps with a kill at the end."""
    for at in sorted(chance.randrange(SIZE) for _ in range(chance.randint(0, 4))):
        wait_until(lambda at=at: process.poll() is not None or written(target) >= at or stuck(file))
        before = (file.version, set(file.paused))
        file.happen(chance)
        story.append((at, before, file.version, set(file.paused)))
    if chance.random() < 0.4:
        at = chance.randrange(SIZE)
        wait_until(lambda: process.poll() is not None or written(target) >= at or stuck(file))
        story.append((at, "killed"))
        process.send_signal(signal.SIGKILL)


def stuck(file: File) -> bool:
    """Return whether the download may be stuck until an event happens."""
    return bool(file.paused) or not all((server.root / "big").exists() for server in file.servers)
