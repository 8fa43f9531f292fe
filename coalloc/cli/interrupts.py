"""Clean termination of work on SIGINT and SIGTERM."""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from coalloc.errors import CoallocError

__all__ = ["CommandLoop"]

if TYPE_CHECKING:
    import asyncio

__all__ = ["Interrupted", "run"]

T = TypeVar("T")


class Interrupted(CoallocError):
    """A request by the user, or the system, to stop."""

    status = 130
    code = "interrupted"


def run(work: Coroutine[Any, Any, T], remedy: str = "") -> T:
    """Run `work` to its end. The first SIGINT or SIGTERM cancels it; the second ends the process at once.

    :param remedy: advice for the user after an interruption
    :raises Interrupted: when a signal ended the work
    """
    import asyncio

    from coalloc.cli.interrupts import CommandLoop

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
    # Plain signal handlers, because those of the event loop would wait while a long checksum keeps it busy.
    loop, asked = task.get_loop(), False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            os.write(2, b"\n\x1b[?25h" if os.isatty(2) else b"\n")  # show the cursor again, which a live display hides
            os._exit(Interrupted.status)
        asked = True
        loop.call_soon_threadsafe(task.cancel)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class CommandLoop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in daemon threads, which end with the process.

    A silent name service blocks such a thread for minutes. asyncio would wait for its own threads before it ends, even
    though the answer is useless by then.
    """

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> list[Any]:
        answer: asyncio.Future[list[Any]] = self.create_future()

        def tell(found: Callable[[Any], None], what: Any) -> None:
            if not answer.done():
                found(what)

        def look_up() -> None:
            told: tuple[Callable[[Any], None], Any]
            try:
                told = answer.set_result, socket.getaddrinfo(*args, **kwargs)
            except Exception as error:
                told = answer.set_exception, error
            with suppress(RuntimeError):  # the loop may be closed already
                self.call_soon_threadsafe(tell, *told)

        Thread(target=look_up, name="coget-names", daemon=True).start()
        return await answer
