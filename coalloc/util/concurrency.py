"""Concurrent calls, where one failure ends them all, and a cancellation is never lost."""

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar, overload

__all__ = ["gather"]

T = TypeVar("T")
U = TypeVar("U")


@overload
async def gather(first: Awaitable[T], second: Awaitable[U], /) -> tuple[T, U]: ...


@overload
async def gather(*calls: Awaitable[T]) -> tuple[T, ...]: ...


async def gather(*calls: Awaitable[Any]) -> tuple[Any, ...]:
    """Return all results, in the order of the calls.

    The first failure is raised when all others have ended, too. `asyncio.gather` leaves them running, and raises the
    failure instead of a cancellation that comes in the same moment, so that its caller goes on; an `asyncio.TaskGroup`
    raises a group of the failures.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return ()
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task in ended:
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return tuple(task.result() for task in tasks)
