"""Work that SIGINT and SIGTERM end cleanly."""

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
    """The user, or the system, asked us to stop."""

    status = 130
    code = "interrupted"


def run(work: Coroutine[Any, Any, T], remedy: str = "") -> T:
    """Run `work` to its end. The first SIGINT or SIGTERM cancels it; the second leaves at once.

    :param remedy: what the user can do after an interruption
    :raises Interrupted: when a signal ended it
    """
    import asyncio

    from coalloc.cli.loop import CommandLoop

    async def stoppable() -> T:
        task = asyncio.ensure_future(work)
        with _signals_cancel(task):
            try:
                return await task
            except asyncio.CancelledError as stop:
                interrupted = Interrupted("interrupted", remedy)
                interrupted.report, interrupted.done = stop.args or (None, None)
                raise interrupted from None

    with asyncio.Runner(loop_factory=CommandLoop) as runner:
        return runner.run(stoppable())


@contextmanager
def _signals_cancel(task: "asyncio.Future[Any]") -> Iterator[None]:
    # Plain handlers, for those of the event loop would wait while a long checksum keeps it busy.
    loop, asked = task.get_loop(), False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os.write(2, b"\n\x1b[?25h" if os.isatty(2) else b"\n")  # a live display hid the cursor
            os._exit(Interrupted.status)
        asked = True
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
