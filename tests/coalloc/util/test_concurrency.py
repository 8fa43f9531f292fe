"""Concurrent calls: results in order, and no task left running after a failure."""

import asyncio

import pytest

from coalloc.util.concurrency import gather


async def test_results_are_in_the_order_of_the_calls() -> None:
    async def late(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    assert await gather(*map(late, (0.02, 0.0, 0.01))) == (0.02, 0.0, 0.01)
    assert await gather() == ()


@pytest.mark.parametrize("begun", [True, False])
async def test_failed_call_ends_all_the_others(begun: bool) -> None:
    state = []

    async def slow() -> None:
        try:
            state.append("begun")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            state.append("ended")

    async def fails() -> None:
        if begun:
            await asyncio.sleep(0)
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        await gather(*([slow(), fails()] if begun else [fails(), slow()]))
    assert state in ([], ["begun", "ended"])
    assert not begun or state
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancellation_ends_all_calls() -> None:
    asked = asyncio.create_task(gather(asyncio.Event().wait(), asyncio.Event().wait()))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("turns", range(6))
async def test_a_cancellation_is_not_lost_if_a_call_fails_in_the_same_moment(turns: int) -> None:
    fail = asyncio.Event()

    async def fails() -> None:
        await fail.wait()
        raise ConnectionResetError("gone")

    task = asyncio.create_task(gather(fails(), asyncio.Event().wait()))
    await asyncio.sleep(0.01)
    fail.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    was_cancelled = task.cancel()
    await asyncio.wait({task})
    assert task.cancelled() == was_cancelled
    assert asyncio.all_tasks() == {asyncio.current_task()}
