"""Control of the emulator: its build, its start and its commands, which emulator/wan.h describes.

When this process ends, even by SIGKILL, the kernel closes its socket to the emulator, and the emulator then removes
everything that it has created. `wan` decides what it creates.
"""

import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.waiting import PATIENCE
from tests.testbed.settings import Settings

__all__ = ["Emulator", "EmulatorError", "build", "refusal"]

SOURCE = Path(__file__).with_name("emulator")
BUILD = SOURCE.parents[2] / "build" / "testbed"
BUILD_SECONDS = PATIENCE
ANSWER_SECONDS = PATIENCE
ANSWER_BYTES = 1 << 17
NEEDED = {"cc": "gcc libc6-dev", "make": "make", "ip": "iproute2", "unshare": "util-linux"}


class EmulatorError(RuntimeError):
    """A failure to build or start the emulator, or a refused command."""


def refusal() -> str | None:
    """Return why this machine cannot run a WAN, or None if it can. Tries to create namespaces; nothing remains."""
    if os.geteuid() != 0:
        return "only root may make network namespaces"
    for program, package in NEEDED.items():
        if not shutil.which(program):
            return f"{program} is not installed: apt-get install {package}"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"/dev/net/tun cannot be used: {error.strerror}"
    tried = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"the kernel allows no namespaces: {tried.stderr.strip()}" if tried.returncode else None


def build(target: str = "all") -> Path:
    """Build a target of emulator/Makefile; return the directory that contains it.

    :raises EmulatorError: the build failed; contains the compiler's output
    """
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / "lock").open("w") as lock:  # for concurrent builds
        fcntl.flock(lock, fcntl.LOCK_EX)
        command = ["make", "--silent", "-C", str(SOURCE), target]
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if done.returncode:
        raise EmulatorError(f"the emulator could not be built:\n{done.stderr}")
    return BUILD


class Emulator:
    """One running emulator, ready when constructed.

    :param hosts: content of /etc/hosts in all hosts
    :ivar folder: directory for files of programs in the hosts; removed when the WAN has ended
    :raises EmulatorError: the emulator could not be built or started
    """

    def __init__(self, hosts: str) -> None:
        self._programs = build()
        self.folder = Path(tempfile.mkdtemp(prefix="coget-wan-"))
        (self.folder / "hosts").write_text(hosts)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(ANSWER_SECONDS)
        with theirs:
            command = [str(self._programs / "emulator"), str(self.folder)]
            self._process = subprocess.Popen(command, stdin=theirs.fileno(), start_new_session=True)
        try:
            self._pid = self._receive("ready")
        except BaseException:
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)  # the guardian does that, unless it was not started yet
            raise

    def host(self, name: str) -> tuple[str, ...]:
        """Create a host; return the words that identify it for `enter`."""
        return tuple(self._ask(f"host {name}").split())

    def link(self, a: int, b: int, device_a: str, device_b: str) -> None:
        """Create a link between two hosts, with devices of these names.

        :param a: number of a host, in the order of creation, from 0
        :param b: number of the other host
        """
        self._ask(f"link {a} {b} {device_a} {device_b}")

    def set(self, direction: int, settings: Settings) -> None:
        """Change the settings of a direction; link n (from 0) has the directions 2n (a to b) and 2n + 1 (b to a)."""
        self._ask(f"set {direction} {_words(settings)}")

    def seed(self, number: int) -> None:
        """Restart the random numbers (loss, jitter, cross traffic) from a seed."""
        self._ask(f"seed {number}")

    def reset(self) -> None:
        """Set all counters to 0."""
        self._ask("reset")

    def stats(self) -> list[dict[str, int]]:
        """Return the counters of each direction."""
        lines = self._ask("stats").splitlines()
        return [{name: int(value) for name, value in (word.split("=") for word in line.split())} for line in lines]

    def missed(self) -> int:
        """Return the number of packets that the kernel dropped because the emulator did not read them in time."""
        return int(self._ask("missed"))

    def enter(self, host: tuple[str, ...], command: Sequence[str]) -> list[str]:
        """Return the command line that runs a command in a host; its process becomes the command (exec)."""
        return [str(self._programs / "enter"), self._pid, *host, *command]

    def close(self) -> None:
        """End the WAN, and wait until its processes, devices and files are gone. May be called twice.

        :raises EmulatorError: the emulator does not end
        """
        self._socket.close()
        try:
            self._process.wait(ANSWER_SECONDS)
        except subprocess.TimeoutExpired:
            raise EmulatorError(f"the emulator (process {self._process.pid}) does not end; kill it") from None

    def _ask(self, command: str) -> str:
        try:
            self._socket.send(command.encode())
        except OSError as error:
            raise EmulatorError(f"the emulator has ended: {error.strerror}") from error
        return self._receive("ok")

    def _receive(self, expected: str) -> str:
        try:
            answer = self._socket.recv(ANSWER_BYTES).decode()
        except OSError as error:
            raise EmulatorError(f"the emulator does not answer: {error}") from error
        if not answer.startswith(expected):
            raise EmulatorError(f"the emulator refused: {answer}" if answer else "the emulator has ended; see above")
        return answer.removeprefix(expected).strip()


def _words(settings: Settings) -> str:
    bursts, cross = settings.bursts, settings.cross
    values = {
        "rate": settings.rate,
        "delay": _nanoseconds(settings.delay),
        "jitter": _nanoseconds(settings.jitter),
        "queue": settings.queue,
        "loss": settings.loss,
        "burst_start": bursts.start if bursts else 0,
        "burst_end": bursts.end if bursts else 0,
        "burst_loss": bursts.loss if bursts else 0,
        "cross_rate": cross.rate if cross else 0,
        "cross_busy": _nanoseconds(cross.busy) if cross else 0,
        "cross_quiet": _nanoseconds(cross.quiet) if cross else 0,
    }
    return " ".join(f"{name}={value}" for name, value in values.items())


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
