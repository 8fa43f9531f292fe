"""Concurrent calls where one failure cancels the others, and a cancellation is never lost."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar, overload

__all__ = ["first_success", "gather", "succeeded"]

T = TypeVar("T")
U = TypeVar("U")


@overload
async def gather(first: Awaitable[T], second: Awaitable[U], /) -> tuple[T, U]: ...


@overload
async def gather(*calls: Awaitable[T]) -> tuple[T, ...]: ...


async def gather(*calls: Awaitable[Any]) -> tuple[Any, ...]:
    """Return all results, in the order of the calls.

    After a failure the other calls are cancelled, and the failure is raised when all have ended. In contrast,
    `asyncio.gather` leaves the others running, and loses a cancellation that comes at the same moment as a failure; an
    `asyncio.TaskGroup` raises an exception group.
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


def succeeded(task: asyncio.Task[Any]) -> bool:
    """Return whether a task has ended with a result."""
    return task.done() and not task.cancelled() and task.exception() is None


async def first_success(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until one task has succeeded, or all have failed."""
    pending = {task for task in tasks if not task.done()}
    while pending and not any(map(succeeded, tasks)):
        _, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
