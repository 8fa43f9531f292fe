"""Whole downloads in virtual time: simulated sources, the real runner, and a scheduler that checks its invariants."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from coalloc.download.connections import SourceConnections
from coalloc.download.runner import TransferRunner
from coalloc.engine.base import Admission
from coalloc.errors import CoallocError, ReplicaChanged
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Stat
from coalloc.schedule.events import Started
from coalloc.schedule.policies import make
from coalloc.testing.invariants import CheckedScheduler
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run


@dataclass
class Result:
    """The result of a simulated download.

    :param content: the bytes at the destination
    :param seconds: duration in virtual time
    :param shares: bytes that each source delivered
    """

    content: bytes = field(repr=False)  # asyncio shows results now and then
    seconds: float
    sources: list[SimulatedSource]
    scheduler: CheckedScheduler
    error: CoallocError | None = None
    shares: list[int] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return sum(source.sent for source in self.sources)


def simulate(
    content: bytes,
    behaviours: Sequence[Behaviour],
    strategy: str = "adaptive",
    *,
    blocks: int | None = None,
    estimates: Sequence[Estimate] | None = None,
    most: int | None = None,
    missing: list[tuple[int, int]] | None = None,
    limit: float = 1e6,
    admissions: Sequence[Admission | None] = (),
) -> Result:
    """Download `content` from sources with these behaviours.

    :param most: number of sources used at the same time
    :param missing: ranges to fetch; the other bytes are already there
    :param limit: time limit in virtual seconds
    :param admissions: rate limit of each source
    """
    return run(_download(content, behaviours, strategy, blocks, estimates, most, missing, limit, admissions))


async def _download(content, behaviours, strategy, blocks, estimates, most, missing, limit, admissions) -> Result:
    sources = [SimulatedSource(f"s{i}", content, behaviour) for i, behaviour in enumerate(behaviours)]
    for source, admission in zip(sources, admissions, strict=False):
        source.options = replace(source.options, admission=admission)
    sink = bytearray(len(content))
    for start, end in _there(missing, len(content)):
        sink[start:end] = content[start:end]

    def agree(source: int, stat: Stat) -> None:
        if stat.size != len(content):
            raise ReplicaChanged(f"source {source} has {stat.size} bytes", "leave it out")

    def write(source: int, start: int, end: int, data: memoryview | None) -> None:
        assert len(data) == end - start
        sink[start:end] = data

    loop = asyncio.get_running_loop()
    scheduler = CheckedScheduler(
        len(content), estimates or [Estimate()] * len(sources), make(strategy, blocks), missing=missing, most=most
    )
    runner = TransferRunner(SourceConnections(sources, agree), write)
    error = None
    try:
        async with asyncio.timeout(limit):
            await runner.run(scheduler, Started(loop.time()))
    except CoallocError as failure:
        error = failure
    finally:
        seconds = loop.time()
        await runner.close()
    shares = [source.bytes for source in scheduler.state.sources]
    return Result(bytes(sink), seconds, sources, scheduler, error, shares)


def _there(missing: list[tuple[int, int]] | None, size: int) -> list[tuple[int, int]]:
    if missing is None:
        return []
    edges = [0, *(edge for pair in missing for edge in pair), size]
    return list(zip(edges[::2], edges[1::2], strict=True))
