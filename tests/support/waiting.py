"""Polling for changes without notification: a table or folder changes, a process comes up."""

import asyncio
import os
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

__all__ = ["PATIENCE", "until", "wait_until"]

PATIENCE = float(os.environ.get("COGET_TESTS_PATIENCE", "180"))
"""Seconds that tests wait for a certain event; slow machines may need more."""


async def until(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the first true answer to a question, which may be awaitable.

    :raises TimeoutError: when there is none within `seconds`
    """
    async with asyncio.timeout(seconds):
        while True:
            answer = question()
            if isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            await asyncio.sleep(0.02)


def wait_until(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the same outside of an event loop, for a plain function; it may raise to give up.

    :raises TimeoutError: when there is none within `seconds`
    """
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(min(0.5, 0.002 + waited / 20))  # soon at first; later less often, to save processor time
    return answer
