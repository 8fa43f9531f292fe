"""One run of one rival: its time, resources and traffic, and whether its file is correct.

The network and its servers come from `tests.benchmarks.field`; what is made of several runs is left to
`tests.benchmarks.results`.
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
"""`late`: not done within the limit; `wrong`: reports success with a wrong file; `invalid`: the testbed did not keep
up, so that the run shows nothing.
"""

SAMPLE_SECONDS = 0.1
INTERRUPT_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class Sample:
    """Bytes that each source had sent towards the client (payload) by a moment (seconds)."""

    seconds: float
    sent: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes [start, end) from a source, and the seconds of the first and the last of them."""

    start: int
    end: int
    first_byte: float
    last_byte: float


class Wire(Protocol):
    """A counter of payload bytes since its creation."""

    def sent(self) -> Mapping[str, int]:
        """Return the bytes that each source sent towards the client."""

    def moved(self) -> int:
        """Return the bytes that went to the client."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command, run in the folder of its target, which must become equal to `original`.

    :param sources: by URL: the source that has it
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
    """One finished run. Seconds are those of the whole process; `moved` bytes of payload went to the client.

    :param cpu: user and system seconds of the client
    :param waited: seconds that its threads were ready to run and had no processor: how much the machine disturbed it
    :param copies: by source: the partial copies in coget's document
    :param said: the output of a failed command
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
    """A running command, watched from outside: its end is known to the millisecond."""

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
        """Wait for its end, at most until `until` seconds after its beginning."""
        readable, _, _ = select.select([self._handle], [], [], max(0.0, until - self.now))
        return bool(readable)

    def waited(self) -> float:
        """Return the seconds that its threads have waited for a processor."""
        threads = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        with suppress(OSError):  # threads end while we look
            self._waited = sum(int(file.read_text().split()[1]) for file in threads) / 1e9
        return self._waited

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> tuple[int, float, str, str]:
        """Reap the process: exit status, CPU seconds, output."""
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
    """Run the command to its end.

    :param events: what happens to the network, and when
    :param limit: seconds after which it counts as late
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
    """Run the command, and kill it when half of `size` has gone over the wire."""
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
    """Return the copies of each source from coget's document; its clock starts late, after the program's start."""
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
