"""Work in separate processes: work over budget ends alone, and the user with the least usage comes first."""

import asyncio
import mmap
import os
import time
import timeit
from contextlib import suppress
from pathlib import Path

import pytest

from broker.errors import TooLarge, TooManyRequests
from broker.history_export import write_parquet
from broker.models.history import TransferRecord
from broker.subprocesses import Budget, JobKind, SeparateProcess, Turns, framed
from broker.subprocesses import separate_process as module
from tests.support.waiting import until

KIND = JobKind("it", "request less")
BUDGET = Budget(memory=200 << 20, seconds=60, each=60, waiting=2)


@pytest.fixture
async def apart():
    made = SeparateProcess(BUDGET)
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("work", "args", "change", "message"),
    [
        (bytes, (10**9,), {}, "more than 200 MB of memory"),
        (mmap.mmap, (-1, 10**9, mmap.MAP_PRIVATE), {}, "more than 200 MB of memory"),
        (time.sleep, (600,), {"seconds": 0.5}, "more than 0.5 s"),
        (pow, (3, 10**9), {"seconds": 1}, "more than 1 s"),
        (os.abort, (), {}, "more than 200 MB"),
    ],
)
async def test_a_job_over_its_budget_is_refused_and_the_next_is_served(apart, work, args, change, message):
    assert await apart.run(KIND, "ann", pow, 2, 10) == 1024
    apart.budget = BUDGET._replace(**change)
    with pytest.raises(TooLarge, match=message) as refused:
        await apart.run(KIND, "ann", work, *args)
    assert refused.value.remedy == KIND.remedy
    apart.budget = BUDGET
    assert await apart.run(KIND, "bob", pow, 2, 10) == 1024


@pytest.mark.sampled(5)
@pytest.mark.parametrize("megabytes", range(100, 140, 2))
async def test_libraries_that_lack_memory_are_too_large_however_they_report_it(apart, megabytes):
    """The budget for time ends libraries that try again for ever."""
    apart.budget = BUDGET._replace(memory=megabytes << 20, seconds=3)
    with suppress(TooLarge):
        await apart.run(KIND, "ann", exec, "import scipy.optimize, scipy.sparse.linalg, pyarrow.parquet")


@pytest.mark.parametrize("error", ["ImportError", "MemoryError", "SystemError", "OSError(12, 'no memory')"])
async def test_an_error_while_memory_lacks_is_too_large(apart, error):
    with pytest.raises(TooLarge):
        await apart.run(KIND, "ann", exec, f"try:\n raise {error}\nexcept Exception:\n raise ValueError from None")
    with pytest.raises(ModuleNotFoundError):
        await apart.run(KIND, "ann", exec, "import no_such_module")


async def test_a_job_that_gets_little_of_the_processor_is_not_too_large(apart):
    """Jobs on a busy machine take longer than a job that stands still may."""
    apart.budget = BUDGET._replace(seconds=0.5)
    slow = "time.sleep(0.4); sum(range(1_000_000))"
    passed = await apart.run(KIND, "ann", timeit.timeit, slow, "import time", time.perf_counter, 5)
    assert passed > module.PATIENCE * apart.budget.seconds


@pytest.mark.sampled(2)
@pytest.mark.parametrize("megabytes", range(200, 260, 10))
async def test_a_table_is_written_under_a_low_memory_limit(tmp_path, megabytes):
    """Limits at which Arrow starts: its own allocator reserves a gigabyte, but needs less at some limits."""
    record = dict.fromkeys(TransferRecord.model_fields)
    rows, table = tmp_path / "rows", tmp_path / "table"
    rows.write_bytes(framed([record] * 2000) * 10)
    apart = SeparateProcess(BUDGET._replace(memory=megabytes << 20))
    try:
        await apart.run(KIND, "ann", write_parquet, str(rows), str(table))
    finally:
        await apart.close()
    assert table.read_bytes().startswith(b"PAR1")


async def test_an_error_of_the_work_is_raised_and_the_process_stays(apart):
    first = await apart.run(KIND, "ann", os.getpid)
    with pytest.raises(ValueError, match="invalid literal"):
        await apart.run(KIND, "ann", int, "x")
    assert await apart.run(KIND, "ann", os.getpid) == first != os.getpid()


async def test_the_result_of_a_cancelled_job_reaches_no_other_job(apart):
    first = await apart.run(KIND, "ann", os.getpid)
    cancelled = asyncio.create_task(apart.run(KIND, "ann", time.sleep, 60))
    await until(lambda: apart.turns._busy)
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert await apart.run(KIND, "bob", pow, 2, 10) == 1024
    assert await apart.run(KIND, "bob", os.getpid) != first


async def test_a_process_is_given_no_secret(apart, monkeypatch):
    monkeypatch.setenv("COGET_BROKER_DATABASE", "postgresql://broker:secret@db.example/broker")
    assert await apart.run(KIND, "ann", os.getenv, "COGET_BROKER_DATABASE") is None
    assert await apart.run(KIND, "ann", os.getenv, "PATH") == os.environ["PATH"]


async def test_users_are_charged_for_the_processors_time_not_for_what_others_take_of_it(apart):
    await apart.run(KIND, "ann", time.sleep, 1.5)
    assert apart.turns._counted.had("ann") < 1
    await apart.run(KIND, "bob", _busy_for, 1.5)
    assert apart.turns._counted.had("bob") > 1


def _busy_for(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


async def test_a_process_without_work_ends(apart, monkeypatch):
    monkeypatch.setattr(module, "IDLE", 0.0)
    number = await apart.run(KIND, "ann", os.getpid)
    await until(lambda: not Path(f"/proc/{number}").exists())
    assert await apart.run(KIND, "ann", pow, 2, 10) == 1024


async def test_the_user_with_the_least_usage_has_the_next_turn():
    turns, order = Turns(each=100, waiting=5), []
    turns._had.add("mallory", 50)

    async def work(subject):
        async with turns.turn(subject, "it"):
            order.append(subject)
            await asyncio.sleep(0)

    async with turns.turn("root", "it"):
        waiting = [asyncio.create_task(work(each)) for each in ("mallory", "mallory", "ann", "bob")]
        await until(lambda: len(turns._line) == len(waiting))
    await asyncio.gather(*waiting)
    assert sorted(order[:2]) == ["ann", "bob"]
    assert order[2:] == ["mallory", "mallory"]


async def test_users_over_their_limits_are_refused_with_a_retry_time():
    turns = Turns(each=10, waiting=1)
    async with turns.turn("ann", "it"):
        waiting = asyncio.create_task(turns._wait("ann"))
        await until(lambda: turns._line)
        with pytest.raises(TooManyRequests, match="waiting requests already"):
            turns.admit("ann", "it")
        turns.admit("bob", "it")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
    turns = Turns(each=10, waiting=1)
    turns._counted.add("ann", 20)
    with pytest.raises(TooManyRequests, match="took 20 s") as refused:
        turns.admit("ann", "it")
    assert 1 < refused.value.retry_after <= 302  # half of it still counts after 300 s


async def test_a_request_that_waits_too_long_is_refused_and_leaves_the_queue(monkeypatch):
    monkeypatch.setattr("broker.subprocesses.turns.LONGEST", 0.01)
    turns = Turns(each=10, waiting=1)
    async with turns.turn("ann", "it"):
        with pytest.raises(TooManyRequests, match="requests of other users come first"):
            async with turns.turn("bob", "it"):
                pass
    async with turns.turn("bob", "it"):
        assert not turns._line
