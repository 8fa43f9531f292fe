"""One run of one rival: its time, resources and traffic, and whether its file is correct.

`tests.benchmarks.field` provides the network and its servers, and `tests.benchmarks.results` evaluates several runs.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

__all__ = ["Command", "Copy", "Outcome", "Run", "Sample", "Wire", "compete", "interrupted"]

Outcome = Literal["ok", "late", "fails", "wrong", "invalid"]
"""`late`: stopped at the time limit; `fails`: ended with an error; `wrong`: reported success with a wrong file;
`invalid`: the testbed could not keep up, so that the run does not count.
"""

SAMPLE_SECONDS = 0.1
INTERRUPT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Sample:
    """The payload bytes that each source had sent towards the client at a time, in seconds after the start."""

    seconds: float
    sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """A partial copy: bytes [start, end) from a source, and the seconds at which its first and last byte arrived."""

    start: int
    end: int
    first_byte: float
    last_byte: float


class Wire(Protocol):
    """A counter of payload bytes since its creation."""

    def sent(self) -> Mapping[str, int]:
        """Return the payload bytes that each source has sent towards the client."""

    def moved(self) -> int:
        """Return the payload bytes that have arrived at the client."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command that makes `target`, which must be equal to `original`. Runs in the directory of `target`.

    :param sources: the host of each source, by URL
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    target: Path
    original: Path
    sources: Mapping[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return self.target.parent


@dataclass(frozen=True, slots=True)
class Run:
    """One finished run.

    :param seconds: duration of the whole process
    :param cpu: user and system seconds of the client
    :param waited: seconds for which its threads were ready to run but had no processor; shows how busy the machine was
    :param moved: payload bytes that arrived at the client
    :param copies: by source, the partial copies in coget's JSON report
    :param said: the beginning of the output of a command that did not succeed
    """

    outcome: Outcome
    seconds: float
    cpu: float
    waited: float
    moved: int
    samples: tuple[Sample, ...] = ()
    copies: Mapping[str, Sequence[Copy]] = field(default_factory=dict)
    said: str = ""


class _Process:
    """A running command. Its end is noticed within a millisecond."""

    def __init__(self, command: Command) -> None:
        self._waited = 0.0
        self._out = (command.home / "stdout").open("w+b")
        self._err = (command.home / "stderr").open("w+b")
        self.began = time.monotonic()
        self._process = subprocess.Popen(
            command.words,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            cwd=command.home,
            env=dict(command.environment),
            start_new_session=True,
        )
        self._handle = os.pidfd_open(self._process.pid)

    @property
    def now(self) -> float:
        return time.monotonic() - self.began

    def ended(self, until: float) -> bool:
        """Wait for its end, at most until `until` seconds after its start; return whether it has ended."""
        readable, _, _ = select.select([self._handle], [], [], max(0.0, until - self.now))
        return bool(readable)

    def waited(self) -> float:
        """Return the seconds that its threads have waited for a processor, as of the last successful reading."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        with suppress(OSError):  # a thread may end meanwhile
            self._waited = sum(int(file.read_text().split()[1]) for file in threads) / 1e9
        return self._waited

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> tuple[int, float, str, str]:
        """Reap the process; return its exit status, CPU seconds, standard output and standard error."""
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        os.close(self._handle)
        texts = []
        for file in (self._out, self._err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        return self._process.returncode, usage.ru_utime + usage.ru_stime, texts[0], texts[1]


def compete(command: Command, wire: Wire, events: Sequence[tuple[float, Callable[[], None]]], limit: float) -> Run:
    """Run the command to its end, or kill it at the time limit, and compare its file with the original.

    :param events: functions that change the network, with their times in seconds after the start
    :param limit: time limit in seconds
    """
    process = _Process(command)
    samples, coming, waited, late = [Sample(0.0, wire.sent())], list(events), 0.0, False
    try:
        while not process.ended(min([samples[-1].seconds + SAMPLE_SECONDS, *(at for at, _ in coming[:1])])):
            while coming and coming[0][0] <= process.now:
                coming.pop(0)[1]()
            samples.append(Sample(process.now, wire.sent()))
            waited = process.waited()
            if late := process.now > limit:
                break
        samples.append(Sample(process.now, wire.sent()))
    finally:
        process.kill()
        status, cpu, out, err = process.close()
    outcome: Outcome = "late" if late else "fails" if status else "ok"
    if outcome == "ok" and not _same(command.target, command.original):
        outcome = "wrong"
    copies = _copies(out, command.sources, samples[-1].seconds)
    said = "" if outcome == "ok" else (err or out).strip()[:400]
    return Run(outcome, samples[-1].seconds, cpu, waited, wire.moved(), tuple(samples), copies, said)


def interrupted(command: Command, wire: Wire, size: int, limit: float) -> None:
    """Run the command, and kill it when half of `size` bytes have arrived at the client, or at the time limit."""
    process = _Process(command)
    try:
        while wire.moved() < size / 2 and process.now < limit and not process.ended(process.now + INTERRUPT_SECONDS):
            pass
    finally:
        process.kill()
        process.close()


def _same(target: Path, original: Path) -> bool:
    return subprocess.run(["cmp", "--silent", target, original], check=False).returncode == 0


def _copies(out: str, sources: Mapping[str, str], ended: float) -> dict[str, list[Copy]]:
    """Return the copies of each source from coget's JSON report, with times that count from the start of the process.

    :param ended: when the process ended
    """
    try:
        document = json.loads(out)
        started = ended - document["seconds"]
        return {sources[source["url"]]: _shifted(source["copies"], started) for source in document["sources"]}
    except (ValueError, KeyError):
        return {}


def _shifted(copies: Sequence[Mapping[str, Any]], by: float) -> list[Copy]:
    return [
        Copy(copy["start"], copy["end"], copy["first_byte"] + by, copy["last_byte"] + by)
        for copy in copies
        if copy["last_byte"] is not None
    ]
