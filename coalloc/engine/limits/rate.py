"""Limits for bytes per second: of one command, and of all coget processes of this user on this machine together.

Each piece of a file has a turn, of as many seconds as it takes at the limited rate; turns do not overlap. The end of
the last turn of all processes is in a file beside those of `server_slots`. A process reserves its next turn only when
the one before has begun. So the processes take turns, and one that is killed costs the others at most one turn. If the
file cannot be used, each process keeps to the whole rate by itself, as the limit is a courtesy and no reason to fail.
"""

import asyncio
import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from coalloc.config import limit_rate
from coalloc.engine.limits.admission import Admission
from coalloc.engine.limits.claims import Claims
from coalloc.engine.limits.server_slots import usual_claims
from coalloc.errors import UsageError

__all__ = ["RateLimit", "SharedTurns", "limited", "rate_admission"]

PIECE_SECONDS = 0.5
"""Length of a turn: long enough that the round trip of each request costs little."""
LEAST_PIECE = 16 * 1024
"""Minimum bytes of a piece, except for the last one of a range."""
CATCH_UP = 1.0
"""Seconds by which a turn may begin too late and still be made up for, as when a piece took longer than its turn."""
LONGEST = 3600.0
"""Maximum seconds between now and the end of the last turn; a later end is not believed."""
AGAIN, ATTEMPTS = 0.01, 100
"""Seconds between attempts to lock the file, and their number: a process may be stopped while it has it locked."""
NAME = "rate"


class SharedTurns(NamedTuple):
    """The turns of all processes of this user, in a file below the directory of `claims`."""

    claims: Claims

    async def reserve(self, seconds: float) -> float:
        """Reserve the next turn; return when it begins, by the monotonic clock, which all processes share.

        :raises OSError: if the file cannot be used
        """
        with self.claims.opened() as directory:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(NAME, flags, 0o600, dir_fd=directory)
        try:
            await _lock(fd)
            now = monotonic()
            begin = _next(_last_end(os.pread(fd, 200, 0), now), now)
            written = f"{_boot()} {begin + seconds:.6f}\n".encode()
            os.pwrite(fd, written, 0)
            os.ftruncate(fd, len(written))
            return begin
        finally:
            os.close(fd)


class RateLimit:
    """Turns of this process, at one rate.

    :param rate: bytes per second
    :param shared: the turns of all processes, if the rate is for all of them together
    """

    def __init__(self, rate: int, shared: SharedTurns | None = None) -> None:
        self.rate = rate
        self._shared = shared
        self._end = 0.0
        self._turn = asyncio.Lock()

    async def wait(self, size: int) -> None:
        """Wait until `size` bytes may be requested."""
        async with self._turn:
            begin = await self._reserve(size / self.rate)
            await asyncio.sleep(max(0.0, begin - monotonic()))

    async def _reserve(self, seconds: float) -> float:
        if self._shared:
            with suppress(OSError):
                return await self._shared.reserve(seconds)
        begin = _next(self._end, monotonic())
        self._end = begin + seconds
        return begin


def limited(own: int | None) -> Admission | None:
    """Return the admission for a command's rate in bytes per second, and the one of config.toml; None for no limit.

    :raises UsageError: for an invalid rate in config.toml
    """
    total = limit_rate()
    if own is None and total is None:
        return None
    from coalloc.planner.documents import units  # imported here because few commands have limits

    try:
        return rate_admission(own, None if total is None else units.rate(total))
    except ValueError as error:
        raise UsageError(f"invalid `limit_rate` in config.toml: {error}", 'write limit_rate = "10 MB/s"') from None


def rate_admission(own: int | None, total: int | None) -> Admission | None:
    """Return the admission for these rates in bytes per second; None for no limit.

    :param own: for this command
    :param total: for all processes of this user
    """
    limits = [RateLimit(own)] if own else []
    if total:
        limits.append(RateLimit(total, SharedTurns(usual_claims())))
    if not limits:
        return None

    async def wait(size: int) -> None:
        for limit in limits:
            await limit.wait(size)

    return Admission(max(LEAST_PIECE, int(PIECE_SECONDS * min(limit.rate for limit in limits))), wait)


async def _lock(fd: int) -> None:
    """Lock the file.

    :raises BlockingIOError: if another process keeps it locked
    """
    for _ in range(ATTEMPTS):
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        await asyncio.sleep(AGAIN)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _next(end: float, now: float) -> float:
    """Return when the next turn begins, if the last one ends at `end`.

    >>> _next(7.0, 5.0), _next(4.5, 5.0), _next(2.0, 5.0)
    (7.0, 4.5, 5.0)
    """
    return end if end > now - CATCH_UP else now


def _last_end(content: bytes, now: float) -> float:
    """Return the end of the last turn; 0 if it is unknown, or of a time before the machine was started."""
    boot, _, end = content.decode("ascii", "replace").partition(" ")
    with suppress(ValueError):
        if boot == _boot() and float(end) <= now + LONGEST:
            return float(end)
    return 0.0


def _boot() -> str:
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return "unknown"
