"""An event loop for coget in a thread of its own, as Snakemake calls some methods of a plugin from its own loop."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

__all__ = ["awaited", "run", "start"]

T = TypeVar("T")

STOP_SECONDS = 10.0
"""Time limit for the end of a cancelled coroutine."""
LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
"""The event loop of this process, by its id: a forked child needs another one."""
LOCK = threading.Lock()


def start(coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
    """Start a coroutine; return its future result."""
    return asyncio.run_coroutine_threadsafe(coroutine, loop())


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also from a coroutine of Snakemake; an interrupt cancels it and waits for its end."""
    future, over = _watched(coroutine)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        over.wait(STOP_SECONDS)
        raise


async def awaited(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end beside others; an interrupt cancels it and waits for its end."""
    future, over = _watched(coroutine)
    try:
        return await asyncio.wrap_future(future)
    finally:
        over.wait(STOP_SECONDS)


def _watched(coroutine: Coroutine[Any, Any, T]) -> "tuple[Future[T], threading.Event]":
    """Start a coroutine; return its future result, and an event at its end, also after it was cancelled."""
    over = threading.Event()

    async def signalled() -> T:
        try:
            return await coroutine
        finally:
            over.set()

    return start(signalled()), over


def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process."""
    with LOCK:
        if os.getpid() not in LOOPS:
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="coget", daemon=True).start()
            LOOPS[os.getpid()] = made
        return LOOPS[os.getpid()]
