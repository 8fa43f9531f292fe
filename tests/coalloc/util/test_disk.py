"""Jobs in threads end before their caller continues, however the caller is interrupted."""

import asyncio
import threading

import pytest

from coalloc.errors import SinkError
from coalloc.util.disk import in_thread
from tests.support.waiting import PATIENCE


@pytest.mark.parametrize(("fails", "raised"), [(False, asyncio.CancelledError), (True, SinkError)])
async def test_cancelled_it_waits_for_the_job_and_tells_its_failure(fails, raised):
    begun, go_on, over = threading.Event(), threading.Event(), threading.Event()

    def job() -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        over.set()
        if fails:
            raise SinkError("the disk is full", "free some space")

    caller = asyncio.create_task(in_thread(job))
    await asyncio.to_thread(begun.wait, PATIENCE)
    for _ in range(3):
        caller.cancel()
        await asyncio.sleep(0.01)
        assert not caller.done()
    go_on.set()
    with pytest.raises(raised):
        await caller
    assert over.is_set()
