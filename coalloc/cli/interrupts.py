"""Clean termination of a command on SIGINT and SIGTERM."""

import os
import signal
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from coalloc.errors import CoallocError

if TYPE_CHECKING:
    import asyncio

__all__ = ["Interrupted", "run"]

T = TypeVar("T")


class Interrupted(CoallocError):
    """A request by the user, or the system, to stop."""

    status = 130
    code = "interrupted"
    _passes = True


def run(work: Coroutine[Any, Any, T], remedy: str = "") -> T:
    """Run `work` to its end. The first SIGINT or SIGTERM cancels it; the second ends the process at once.

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
        if interrupted:
            os.write(2, b"\n\x1b[?25h" if os.isatty(2) else b"\n")  # show the cursor again, which a live display hides
            os._exit(Interrupted.status)
        interrupted = True
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
