"""The event loop of a command: one that does not wait, at its end, for names that nobody asks for any more."""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any

__all__ = ["CommandLoop"]


class CommandLoop(asyncio.SelectorEventLoop):
    """Looks names up in threads that end with the process.

    A name service that is silent holds such a thread for minutes. Those of asyncio are waited for, however little the
    answer is worth by then.
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
            with suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(tell, *told)

        Thread(target=look_up, name="coget-names", daemon=True).start()
        return await answer
