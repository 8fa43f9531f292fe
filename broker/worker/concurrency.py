"""Concurrent execution of work items, in which a failure does not affect other items."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from broker.models.tasks import Options, Work
from broker.models.work import WorkResult
from broker.worker.policy.faults import failed
from broker.worker.recorder import Recorder

__all__ = ["of_each", "side_by_side"]


async def side_by_side(
    do: Callable[[Work], Awaitable[WorkResult]],
    batch: Sequence[Work],
    recorder: Recorder,
    options: Options,
    at_once: int,
) -> None:
    """Run a batch of work items, at most `at_once` at a time, and report each result."""
    turn = asyncio.Semaphore(at_once)

    async def one(work: Work) -> None:
        async with turn:
            try:
                await recorder.fence.check_if_silent(work)
                result = await do(work)
            except Exception as error:
                result = failed(work, error, options)
        recorder.report(result)

    await asyncio.gather(*(one(work) for work in batch))


async def of_each(do: Callable[[Work], Awaitable[None]], batch: Sequence[Work]) -> None:
    """Call a function for all work items of a batch.

    :raises Exception: the first error, after all calls
    """
    for outcome in await asyncio.gather(*map(do, batch), return_exceptions=True):
        if outcome is not None:
            raise outcome
