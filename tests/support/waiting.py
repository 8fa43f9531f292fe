"""Polling for events without a notification, such as a change of a table or a directory, or the start of a process."""

import asyncio
import os
import time
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

__all__ = ["PATIENCE", "until", "wait_until"]

PATIENCE = float(os.environ.get("COGET_TESTS_PATIENCE", "180"))
"""Seconds for which tests wait for an expected event; slow machines may need more."""


async def until(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Call `question` again and again, and await its result if it is awaitable; return the first true result.

    :raises TimeoutError: there is no true result within `seconds`
    """
    began = time.monotonic()
    async with asyncio.timeout(seconds):
        while True:
            answer = question()
            if isawaitable(answer):
                answer = await answer
            if answer:
                return answer
            waited = time.monotonic() - began
            await asyncio.sleep(min(0.1, 0.02 + waited / 20))  # less and less often, to save processor time


def wait_until(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Call `question` again and again; return the first true result. For use outside of event loops.

    :raises TimeoutError: there is no true result within `seconds`
    """
    began = time.monotonic()
    while not (answer := question()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(min(0.5, 0.002 + waited / 20))  # less and less often, to save processor time
    return answer
