"""Client of a separate process for work that takes much memory or time; it does one job at a time, in fair order.

The next job is that of the waiting user with the least use so far. A job that exceeds its budget ends with its process,
and the next one gets a new process. A process that is idle for a while, or has become large, is ended to free its
memory.
"""

import asyncio
import math
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
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
"""Prefixes of the environment variables that a process gets."""
IDLE = 20.0
"""Seconds after which a process without work is ended."""
PATIENCE = 3
GROWN = 0.8
"""Share of its memory limit that a process may still use after a job; above it, the process is ended."""
MB = 1 << 20


class Budget(NamedTuple):
    """Limits of one job.

    :param memory: bytes of its process
    :param seconds: processor time; on a busy machine the job may last longer, up to `PATIENCE` times that
    :param each: seconds of processor time that one user may use within minutes
    :param waiting: jobs of one user that may wait
    :param reserved: address space in bytes that a library reserves and does not use, in addition to `memory`
    """

    memory: int
    seconds: float
    each: float
    waiting: int
    reserved: int = 0


class JobKind(NamedTuple):
    """A kind of job: its name in refusals, and the remedy for one that is too large."""

    what: str
    remedy: str


class SeparateProcess:
    """One process for such jobs, which starts with the first job and ends when it is idle."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.turns = Turns(budget.each, budget.waiting)
        self._process: asyncio.subprocess.Process | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._leaving: set[asyncio.Future[int]] = set()

    async def run(
        self, kind: JobKind, subject: str, work: Callable[Given, Result], *args: Given.args, **_: Given.kwargs
    ) -> Result:
        """Run a function of a module with these arguments in the process, and return its result; its errors are raised
        here.

        :param subject: user whose job it is; the user with the least use so far is served first
        :raises TooLarge: when it takes more memory or time than a job may
        :raises TooManyRequests: when too many jobs of this user wait, or have taken too long
        """
        async with self.turns.turn(subject, kind.what) as turn:
            return cast(Result, await self._done(kind, turn, work, args))

    async def close(self) -> None:
        """End the process."""
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
            async with asyncio.timeout(PATIENCE * self.budget.seconds):
                well, found, size, turn.seconds = await _answer(process, frame)
        except TimeoutError:
            await self.close()
            raise self._too_much(kind, f"more than {self.budget.seconds:g} s") from None
        except (EOFError, OSError):
            raise await self._why(kind) from None
        except BaseException:
            await self.close()  # otherwise the next job would get this job's answer
            raise
        if size > GROWN * self.budget.memory:
            await self.close()
        else:
            self._ending = asyncio.get_running_loop().call_later(IDLE, self._retire)
        if not well:
            raise found  # type: ignore[misc]
        return found

    async def _why(self, kind: JobKind) -> BrokerError:
        """Return the error for a process that ended in the middle of a job: libraries abort when they lack memory."""
        process, self._process = self._process, None
        status = await process.wait() if process else 0
        if status == -signal.SIGXCPU:
            return self._too_much(kind, f"more than {self.budget.seconds:g} s")
        if status != OUT_OF_MEMORY:
            log.error("a process has died", what=kind.what, status=status)
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
        """Let the process end, which it does when its input is closed."""
        self._ending = None
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            leaving = asyncio.ensure_future(process.wait())
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)


def _environment() -> dict[str, str]:
    """Return the environment that a process needs; other variables may be secrets.

    It uses one thread for algebra, few heaps, and these heaps also for Arrow, whose own allocator would reserve a
    gigabyte of the limit.
    """
    inherited = {name: value for name, value in os.environ.items() if name.startswith(INHERITED)}
    return {**inherited, "MALLOC_ARENA_MAX": "2", "OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


async def _answer(process: asyncio.subprocess.Process, frame: bytes) -> tuple[bool, object, int, float]:
    """Return whether the job succeeded, its result or error, the memory of the process after it, and the processor time
    in seconds that it took.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(frame)
    await process.stdin.drain()
    (length,) = HEAD.unpack(await process.stdout.readexactly(HEAD.size))
    body = await process.stdout.readexactly(length)
    well, found, size, seconds = await asyncio.to_thread(pickle.loads, body)
    return well, found, size, seconds
