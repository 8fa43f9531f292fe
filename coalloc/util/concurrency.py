"""Concurrent queries, where one failure ends them all: none continues after the caller has returned."""

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

__all__ = ["answers"]

T = TypeVar("T")


async def answers(questions: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return all answers, in the order of the questions.

    The first failure is raised when all others have ended, too. An asyncio.TaskGroup would raise a group of it.
    """
    tasks = [asyncio.ensure_future(question) for question in questions]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
