"""The speed of the broker's tasks compared with globus-url-copy, and the cost of waiting tasks.

    python -m tests.benchmarks.tasks [small] [big] [far] [queue] [woken] [--files 10000] [--gib 2] [--rounds 3]

`small`: a directory of files of 10 kB; `big`: one file. Both are copied from one server on this machine to another,
with files in memory: by globus-url-copy, by a task without checksums and by one with checksums, in a random order. A
ratio compares runs of one round.
`far`: a fifth of the files of `small`, from a server 20 ms from the broker to one 80 ms away, on an emulated WAN.
`queue`: the time of submissions with 100,000 tasks in the table, and the processor time of 10,000 waiting tasks.
`woken`: the time of a task of one small file at a worker in a separate process, on PostgreSQL: with a worker that is
woken, and with one that only looks for work at intervals.
"""

import argparse
import asyncio
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median, quantiles
from typing import NamedTuple
from uuid import uuid4

import structlog
from sqlalchemy import select

from broker.background import WakeUps, worker_of
from broker.memory import collect_seldom
from broker.models.collections import NewCollection
from broker.models.tasks import Item
from broker.schema.tasks import tasks
from broker.storage.collections import CollectionStore
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from tests.benchmarks.loopback import MEMORY, measure, spread
from tests.broker.worlds import Server, World, world_of, world_with
from tests.support.postgres import postgres
from tests.support.workers import Workers
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

SCENARIOS = ("small", "big", "far", "queue", "woken")
SMALL = 10_000
MADE = {"id", "owner", "created_at"}
WAITING = 10_000
IN_TABLE = 100_000
LOOKED = 20.0
"""Seconds for which waiting tasks are observed."""
TIMED = 20
"""Number of tasks of which `woken` takes the median time."""


class Elsewhere(NamedTuple):
    """A server that another process has started."""

    root: Path
    host: str
    port: int

    def url(self, path: str) -> str:
        return f"ftp://{self.host}:{self.port}{self.root}/{path}"


@asynccontextmanager
async def working(folder: Path, *between: Server) -> AsyncIterator[World]:
    """Run a broker on SQLite and a worker in this process.

    :param between: source and sink of its tasks; without them, two new servers are started
    """
    collect_seldom()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    database = f"sqlite:///{folder / 'broker.sqlite'}"
    upgrade(addressed(database))
    async with world_with(database, folder, *between) if between else world_of(database, folder) as world:
        running = asyncio.create_task(worker_of(world.factory).run())
        yield world
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def race(
    title: str, unit: str, amount: float, rivals: dict[str, Callable[[], Awaitable[None]]], count: int
) -> None:
    """Run the rivals, and print a line for each: amount per second, and its ratio to that of the first rival.

    :param amount: number of units (`unit`) that a run copies
    :param count: number of rounds
    """
    seconds: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(count):
        for name in random.sample(list(rivals), len(rivals)):
            began = time.perf_counter()
            await rivals[name]()
            seconds[name].append(time.perf_counter() - began)
    print(f"\n{title}, {count} rounds: median [least-most]")
    peer = next(iter(seconds.values()))
    for name, mine in seconds.items():
        ratios = [theirs / ours for theirs, ours in zip(peer, mine, strict=True)]
        rate = spread([amount / each for each in mine], "{:.0f}")
        print(f"  {name:28} {rate:>22} {unit}  ratio {spread(ratios):>18}", flush=True)


def rivals(world: World, name: str, item: Item, words: Sequence[str]) -> dict[str, Callable[[], Awaitable[None]]]:
    """Return the rivals: globus-url-copy, and tasks with and without checksums. Each first deletes its target.

    :param name: path to copy, below the servers' directories; a directory ends with a slash
    :param item: the same path as an item of a task
    :param words: options of globus-url-copy
    """

    def clear() -> None:
        target = world.sink.root / name.rstrip("/")
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)

    def guc() -> None:
        clear()
        urls = [server.url(name.rstrip("/")) + name[len(name.rstrip("/")) :] for server in (world.source, world.sink)]
        measure(["globus-url-copy", "-q", "-cd", *words, *urls])

    async def task(verify: bool) -> None:
        clear()
        done = await world.over(await world.submit("TRANSFER", [item], verify_checksum=verify), 600)
        assert done.status == "SUCCEEDED", done.error

    return {
        " ".join(["globus-url-copy", *words]): lambda: asyncio.to_thread(guc),
        "task, no checksums": lambda: task(False),
        "task": lambda: task(True),
    }


async def small(world: World, files: int, count: int, title: str = "small") -> None:
    """Run `small` or `far`."""
    (world.source.root / "small").mkdir()
    for number in range(files):
        (world.source.root / "small" / f"file-{number}").write_bytes(random.randbytes(SMALL))
    item = Item(source="/small/", destination="/small/", recursive=True)
    runs = rivals(world, "small/", item, ["-pp", "-cc", "4", "-r"])
    await race(f"{title}: {files} files of {SMALL} bytes", "files/s", files, runs, count)
    print("wanted: >= 500 files/s, ratio >= 1.0")


async def big(world: World, size: int, count: int) -> None:
    """Run `big`."""
    with (world.source.root / "big").open("wb") as file:
        file.truncate(size)  # a sparse file, so that memory remains for its copy
    runs = rivals(world, "big", Item(source="/big", destination="/big"), [])
    await race(f"big: one file of {size >> 20} MiB", "MB/s", size / 1e6, runs, count)
    print("wanted: ratio >= 0.95")


def far(options: argparse.Namespace) -> None:
    """Run `far`: start this program again, on the client's host of a WAN."""
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name, Wan(Topology.load("far")) as wan:
        folders = [Path(name) / end for end in ("from", "to")]
        for folder in (Path(name), *folders):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        with servers.gridftp(wan, "s1", folders[0]) as source, servers.gridftp(wan, "s2", folders[1]) as sink:
            ends = [f"{server.host} {server.port} {server.root}" for server in (source, sink)]
            words = [
                "-m",
                "tests.benchmarks.tasks",
                "--files",
                str(options.files // 5),
                "--rounds",
                str(options.rounds),
            ]
            command = wan.command("client", [sys.executable, *words, "--between", *ends])
            subprocess.run(command, check=True, env={**os.environ, "GLOBUS_HOSTNAME": wan.address("client")})
        wan.check()


async def queue(world: World) -> None:
    """Run `queue`."""
    await fill(world, IN_TABLE)
    await hold(world)
    took = []
    for _ in range(WAITING):
        began = time.perf_counter()
        await world.submit("TRANSFER", [Item(source="/none", destination="/none")])
        took.append(time.perf_counter() - began)
    print(f"\nqueue: a submission with {IN_TABLE} tasks in the table: p99 {quantiles(took, n=100)[98] * 1e3:.1f} ms")
    print("wanted: <= 100 ms")
    await asyncio.sleep(5.0)
    began, cpu = time.perf_counter(), time.process_time()
    await asyncio.sleep(LOOKED)
    share = (time.process_time() - cpu) / (time.perf_counter() - began)
    print(f"queue: {WAITING} waiting tasks take {share:.1%} of a processor\nwanted: <= 5 %")


async def fill(world: World, count: int) -> None:
    """Insert finished tasks into the table."""
    first = await world.submit("TRANSFER", [Item(source="/none", destination="/none")], "local")
    async with world.factory.database.write() as connection:
        values = dict((await connection.execute(select(tasks).where(tasks.c.id == first))).one()._mapping)
        over = {**values, "status": "SUCCEEDED", "completed_at": time.time()}
        rows = [{**over, "id": str(uuid4()), "submission_id": str(uuid4())} for _ in range(count)]
        await connection.execute(tasks.insert(), rows)


async def hold(world: World) -> None:
    """Limit the sink to one lane and 1 B/s, and submit two tasks that keep it busy."""
    async with world.factory.database.write() as connection:
        kept = CollectionStore(connection)
        (sink,) = [each for each in await kept.all() if each.name == "sink"]
        slow = {"concurrency": 1, "rate": 1.0}
        await kept.put(
            sink.id, "ann", NewCollection.model_validate({**sink.model_dump(exclude=MADE), **slow}), time.time()
        )
    (world.source.root / "slow").write_bytes(bytes(SMALL))
    for _ in range(2):
        await world.submit("TRANSFER", [Item(source="/slow", destination="/slow")])
    await asyncio.sleep(2.0)


async def woken() -> None:
    """Run `woken`."""
    folder = Path(tempfile.mkdtemp(prefix="coget-woken-"))
    try:
        with postgres() as server:
            database = server.create()
            upgrade(database)
            workers = Workers(database, folder)
            async with world_of(database, folder) as world, WakeUps(world.factory.database.url) as wake_ups:
                (world.source.root / "small").write_bytes(bytes(SMALL))
                workers.start()
                try:
                    await timed(world, "first", 1)
                    alone = await timed(world, "alone", TIMED)
                    world.factory.new_work.subscribe(wake_ups.ring)
                    rung = await timed(world, "rung", TIMED)
                finally:
                    workers.close()
    finally:
        shutil.rmtree(folder)
    for name, took in (("woken", rung), ("not woken", alone)):
        low, middle, high = quantiles(took, n=20)[0], median(took), quantiles(took, n=20)[18]
        print(f"{name}: a task of one small file takes {middle:.2f} s (median; 5 to 95 %: {low:.2f} to {high:.2f} s)")


async def timed(world: World, name: str, count: int) -> list[float]:
    """Return the seconds from the submission of each task to its end, one task after the other."""
    took = []
    for number in range(count):
        began = time.perf_counter()
        task = await world.submit("TRANSFER", [Item(source="/small", destination=f"/{name}{number}")])
        while (await world.task(task)).status == "ACTIVE":  # noqa: ASYNC110 - a table changes
            await asyncio.sleep(0.01)
        took.append(time.perf_counter() - began)
        await asyncio.sleep(random.random())
    return took


async def run(chosen: str, options: argparse.Namespace) -> None:
    ends = [end.split() for end in options.between or ()]
    between = [Elsewhere(Path(root), host, int(port)) for host, port, root in ends]
    with tempfile.TemporaryDirectory(dir=MEMORY, prefix="coget-bench-") as name:
        async with working(Path(name), *between) as world:
            if chosen == "small":
                await small(world, options.files, options.rounds, "far" if between else "small")
            if chosen == "big":
                await big(world, int(options.gib * 1024) << 20, options.rounds)
            if chosen == "queue":
                await queue(world)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("chosen", nargs="*", choices=[*SCENARIOS, []])
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--between", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.between:
        options.chosen = ["small"]
    for chosen in options.chosen or SCENARIOS:
        if chosen == "far":
            far(options)
        else:
            asyncio.run(woken() if chosen == "woken" else run(chosen, options))


if __name__ == "__main__":
    main()
