"""The client of a subprocess that runs one job at a time, in fair order.

The next job is of the waiting user with the least recent use. If a job exceeds its budget, the subprocess ends, and the
next job gets a new one. A subprocess that is idle for a while, or has grown, is ended to free its memory.
"""

import asyncio
import math
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar, cast

import structlog

from broker.errors import BrokerError, TooLarge
from broker.subprocesses.child import HEAD, OUT_OF_MEMORY, framed
from broker.subprocesses.turns import Turns, UserTurn

__all__ = ["Budget", "JobKind", "SeparateProcess"]

log = structlog.get_logger("broker.subprocesses")
Given = ParamSpec("Given")
Result = TypeVar("Result")

PROGRAM = "import sys; from broker.subprocesses.child import main; main(*map(int, sys.argv[1:]))"
INHERITED = ("HOME", "LANG", "LC_", "LD_", "PATH", "PYTHON", "TMPDIR", "TZ")
"""Prefixes of the environment variables that a subprocess inherits."""
IDLE = 20.0
"""Seconds after which an idle subprocess is ended."""
PATIENCE = 3
STANDSTILL = 0.001
"""Share of a job's processor time; a job that used less of it while `PATIENCE` times this time passed stands still.

A job on a busy machine uses more: it is slow, not too large.
"""
LONGEST = 10
"""Maximum number of such times: others wait for the subprocess."""
GROWN = 0.8
"""Share of its memory limit that a subprocess may use after a job; above it, the subprocess is ended."""
MB = 1 << 20


class Budget(NamedTuple):
    """Limits of one job.

    :param memory: memory of the subprocess in bytes
    :param seconds: processor time; a job that uses none of it for `PATIENCE` times as long is ended, too
    :param each: limit of one user's recent processor time in seconds
    :param waiting: most waiting jobs of one user
    :param reserved: bytes in addition to `memory`, for address space that a library reserves and does not use
    """

    memory: int
    seconds: float
    each: float
    waiting: int
    reserved: int = 0


class JobKind(NamedTuple):
    """A kind of job: its name in error messages, and the remedy for a job that is too large."""

    what: str
    remedy: str


class SeparateProcess:
    """One subprocess for jobs, which starts with the first job, and ends when it is idle."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.turns = Turns(budget.each, budget.waiting)
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Future[int]] = set()

    async def run(
        self, kind: JobKind, subject: str, work: Callable[Given, Result], *args: Given.args, **_: Given.kwargs
    ) -> Result:
        """Run a module's function in the subprocess; return its result, or raise its error.

        :param subject: user of the job; the user with the least recent use is served first
        :raises TooLarge: when the job exceeds its memory or time
        :raises TooManyRequests: when too many jobs of the user wait, or the user's jobs have taken too long
        """
        async with self.turns.turn(subject, kind.what) as turn:
            return cast(Result, await self._done(kind, turn, work, args))

    async def close(self) -> None:
        """Kill the subprocess, and wait for its end."""
        self._no_longer_idle()
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        await asyncio.gather(*self._leaving)

    async def _done(
        self, kind: JobKind, turn: UserTurn, work: Callable[..., object], args: tuple[object, ...]
    ) -> object:
        self._no_longer_idle()
        frame = await asyncio.to_thread(framed, (work, args))
        process = self._process = self._process or await self._started()
        try:
            well, found, size, turn.seconds = await self._answer_of_running(process, frame)
        except TimeoutError:
            await self.close()
            raise self._too_much(kind, f"more than {self.budget.seconds:g} s") from None
        except (EOFError, OSError):
            raise await self._why(kind) from None
        except BaseException:
            await self.close()  # otherwise the next job would get this job's result
            raise
        if size > GROWN * self.budget.memory:
            await self.close()
        else:
            self._ending = asyncio.get_running_loop().call_later(IDLE, self._retire)
        if not well:
            raise found  # type: ignore[misc]
        return found

    async def _answer_of_running(
        self, process: asyncio.subprocess.Process, frame: bytes
    ) -> tuple[bool, object, int, float]:
        """Return the answer to a job, as `_answer`.

        :raises TimeoutError: if the job stands still, or has used its processor time
        """
        answer = asyncio.ensure_future(_answer(process, frame))
        began = used = _processor_seconds(process.pid)
        try:
            for _ in range(LONGEST):
                if (await asyncio.wait({answer}, timeout=PATIENCE * self.budget.seconds))[0]:
                    return answer.result()
                before, used = used, _processor_seconds(process.pid)
                if used - before < STANDSTILL * self.budget.seconds or used - began > self.budget.seconds:
                    break
            raise TimeoutError
        finally:
            answer.cancel()
            await asyncio.wait({answer})

    async def _why(self, kind: JobKind) -> BrokerError:
        """Return the error for a subprocess that died during a job, usually because of its limits."""
        process, self._process = self._process, None
        status = await process.wait() if process else 0
        if status == -signal.SIGXCPU:
            return self._too_much(kind, f"more than {self.budget.seconds:g} s")
        if status != OUT_OF_MEMORY:
            log.error("a subprocess has died", what=kind.what, status=status)
        return self._too_much(kind, f"more than {self.budget.memory // MB} MB of memory")

    def _too_much(self, kind: JobKind, amount: str) -> BrokerError:
        return self.turns.refusal(TooLarge(f"{kind.what} would take {amount}", kind.remedy))

    async def _started(self) -> asyncio.subprocess.Process:
        limits = (str(self.budget.memory + self.budget.reserved), str(math.ceil(self.budget.seconds)))
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-c", PROGRAM, *limits, stdin=pipe, stdout=pipe, env=_environment()
        )

    def _no_longer_idle(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _retire(self) -> None:
        """Close the input of the subprocess, which makes it end."""
        self._ending = None
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            leaving = asyncio.ensure_future(process.wait())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)


def _environment() -> dict[str, str]:
    """Return the environment of a subprocess, without other variables, which may be secrets.

    It limits linear algebra to one thread and glibc to few heaps, and makes Arrow use these heaps, because its own
    allocator would reserve a gigabyte of the limit.
    """
    inherited = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
    return {**inherited, "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def _processor_seconds(pid: int) -> float:
    """Return the processor time that a child has used, 0 after its end; see proc(5), /proc/pid/stat."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _answer(process: asyncio.subprocess.Process, frame: bytes) -> tuple[bool, object, int, float]:
    """Return whether a job succeeded, its result or error, the process's memory in bytes and its processor seconds."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame)
    await process.stdin.drain()
    (length,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
    body = await process.stdout.readexactly(length)
    well, found, size, seconds = await asyncio.to_thread(pickle.loads, body)
    return well, found, size, seconds
