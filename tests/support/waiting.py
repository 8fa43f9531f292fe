"""Waiting for what nobody is told of: a table or a folder changes, a process comes up."""

import asyncio
import os
from collections.abc import Callable
from inspect import isawaitable
from typing import Any

__all__ = ["PATIENCE", "until"]

PATIENCE = float(os.environ.get("COGET_TESTS_PATIENCE", "180"))
"""Seconds that tests wait for what will surely come; slow machines may need more."""


async def until(question: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """The first answer that says yes, to a question that may have to be awaited.

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
