"""The event loop of a command, which ends without waiting for threads whose results are no longer needed."""

import asyncio
import asyncio.base_events
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any, TypeVar

__all__ = ["CommandLoop", "in_daemon_thread"]

T = TypeVar("T")

# asyncio checks that no socket of ssl is used directly; coget has none, and the check would load all of ssl.
asyncio.base_events._check_ssl_socket = lambda sock: None  # type: ignore[attr-defined]


class CommandLoop(asyncio.SelectorEventLoop):
    """An event loop that looks names up in daemon threads, which end with the process.

    A name service that does not answer blocks such a thread for minutes; asyncio's own loop would wait for it at its
    end, although the answer is useless by then.
    """

    async def getaddrinfo(self, *args: Any, **kwargs: Any) -> list[Any]:
        return await in_daemon_thread(partial(socket.getaddrinfo, *args, **kwargs))


async def in_daemon_thread(job: Callable[[], T]) -> T:
    """Run a job in a thread that ends with the process, even if the job never ends; return its result."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(method: Callable[[Any], None], value: Any) -> None:
        if not answer.done():
            method(value)

    def run() -> None:
        outcome: tuple[Callable[[Any], None], Any]
        try:
            outcome = answer.set_result, job()
        except Exception as error:
            outcome = answer.set_exception, error
        with suppress(RuntimeError):  # the loop may be closed already
            loop.call_soon_threadsafe(settle, *outcome)

    Thread(target=run, name="coget-daemon", daemon=True).start()
    return await answer
