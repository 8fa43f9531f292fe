"""Clean termination of a command on SIGINT and SIGTERM."""

import os
import signal
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from coalloc.errors import CoallocError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Interrupted", "run", "stop_at_once"]

T = TypeVar("T")

SIGNALS = (signal.SIGINT, signal.SIGTERM)


ONE_REQUEST = 0.2
"""Seconds within which a signal that arrives twice is one request to stop.

A terminal sends Ctrl-C to both processes of the single-file executable, and the one passes it on to the other.
"""


class Interrupted(CoallocError):
    """A request by the user, or the system, to stop."""

    status = 130
    code = "interrupted"
    _passes = True


def stop_at_once(number: int, frame: FrameType | None) -> None:
    """End the process; a signal handler for when nothing is to be cleaned up, and for signals after the first."""
    cursor = b"\n\x1b[?25h" if os.isatty(2) else b""  # show the cursor again, which a live display hides
    with suppress(OSError):
        os.write(2, cursor + b"coget: interrupted\n")
    os._exit(Interrupted.status)


def run(work: Coroutine[Any, Any, T], remedy: str = "") -> T:
    """Run `work` to its end. The first SIGINT or SIGTERM cancels it; the second ends the process at once.

    The same signal within `ONE_REQUEST` seconds is not a second one.

    :param remedy: advice for the user after an interruption
    :raises Interrupted: when a signal ended the work
    """
    import asyncio

    from coalloc.cli.event_loop import CommandLoop

    async def stoppable() -> T:
        try:
            return await task
        except asyncio.CancelledError:
            raise Interrupted("interrupted", remedy) from None

    with asyncio.Runner(loop_factory=CommandLoop) as runner:
        task = runner.get_loop().create_task(work)
        with _signals_cancel(task):  # outside of `run`, which has handlers of its own unless there are others
            return runner.run(stoppable())


@contextmanager
def _signals_cancel(task: "asyncio.Future[Any]") -> Iterator[None]:
    # Plain signal handlers, because the event loop's own would wait while a long checksum keeps the loop busy.
    loop, interrupted = task.get_loop(), False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        until = time.monotonic() + ONE_REQUEST

        def stop_again(again: int, frame: FrameType | None) -> None:
            if again != number or time.monotonic() >= until:
                stop_at_once(again, frame)

        for each in SIGNALS:  # stays so until the process ends: its threads and the event loop are still to end
            signal.signal(each, stop_again)
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in SIGNALS}
    try:
        yield
    finally:
        if not interrupted:
            for number, handler in before.items():
                signal.signal(number, handler)
