"""A file as a stream of bytes in order, which a program reads while they arrive."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from random import getrandbits
from typing import TYPE_CHECKING

from coalloc.api.downloads import broker_of
from coalloc.api.requested_transfer import RequestedTransfer
from coalloc.download.connections import stop
from coalloc.download.in_order import InOrderDownload, InOrderSettings
from coalloc.download.request import Request, named_files, ranked
from coalloc.engine.first_answers import FirstAnswers
from coalloc.errors import UsageError
from coalloc.guarantees.checks import check_rate
from coalloc.history.finishes import FinishHistory
from coalloc.history.transfers import TransferHistory
from coalloc.model.forecasts import FoundReplicas
from coalloc.model.progress import Snapshot
from coalloc.model.promises import ReadingRate
from coalloc.model.reports import Results, TransferReport

if TYPE_CHECKING:
    from coalloc.broker_client import Broker

__all__ = ["stream"]

ORDERLY = ("adaptive", "single")
"""The strategies that deliver bytes about in order."""


async def stream(
    request: Request,
    watch: Callable[[Snapshot], None] | None = None,
    results: Results[TransferReport] | None = None,
    rate: ReadingRate | None = None,
) -> AsyncGenerator[bytes, None]:
    """Fetch the file that the request names, and yield its bytes in order, while they arrive.

    Bytes are requested only as far ahead of the reader as memory allows (`in_order.ROOM`), so a slow reader slows the
    transfer down. Pieces with known hashes are yielded only if they are right; everything else is checked after the
    last byte. So do not rely on the bytes before the iterator has ended without an error. Nothing can be resumed.

    With a `rate`, the bytes are yielded at that rate. It is promised before the first one: until then, all sources are
    measured for some seconds. The report tells in how many seconds bytes were missing.

    `watch` receives snapshots, which show how likely the promise is kept; their `warnings` name the rate, or the share
    of the seconds, that could be promised instead. After an error, `results` has the report so far.

    :raises UsageError: if the request names several files, or options that need a file on the disk, or if the rate is
        no number that can be promised
    :raises RateRefused: if the rate cannot be promised
    :raises VerificationError: at the end, if wrong bytes were yielded
    :raises CoallocError: if the transfer fails
    """
    _check(request)
    if rate:
        check_rate(rate.rate, rate.share)
    with closing(FirstAnswers()) as first:
        request = request.begun._replace(first=first)
        handed: asyncio.Queue[bytes | None] = asyncio.Queue()
        fetching = asyncio.create_task(_fetch(request, handed, watch, results or Results(), rate))
        try:
            while (data := await handed.get()) is not None:
                yield data
                handed.task_done()
            await fetching
        finally:
            await stop([fetching])


def _check(request: Request) -> None:
    if request.strategy not in ORDERLY:
        raise UsageError(
            f"--strategy {request.strategy} does not fetch a file in order", f"use {' or '.join(ORDERLY)}, or -o NAME"
        )
    if request.staging is not None:
        raise UsageError("--staging needs a file on the disk", "leave it out, or use -o NAME")


async def _fetch(
    request: Request,
    handed: asyncio.Queue[bytes | None],
    watch: Callable[[Snapshot], None] | None,
    results: Results[TransferReport],
    rate: ReadingRate | None,
) -> None:
    """Fetch the file, hand over its bytes one chunk at a time, and at the end None."""

    async def take(data: memoryview) -> None:
        handed.put_nowait(bytes(data))
        await handed.join()

    try:
        broker = broker_of(request)
        found = await _named(request, broker)
        past = TransferHistory.open()
        transfer = RequestedTransfer(request, found, broker, past)
        file, estimates = ranked(found, past)
        sources = transfer.sources(file)
        settings = _settings(request, rate, past)._replace(admit=transfer.reserve(file))
        fetch = InOrderDownload(file, sources, estimates, take, settings, watch, seed=getrandbits(32))
        report = await transfer.run(fetch, "standard output", results)
        results.done.append(report)
        await transfer.record(report)
    finally:
        handed.put_nowait(None)


async def _named(request: Request, broker: "Broker | None") -> FoundReplicas:
    """Return the one file that the request names, once the routes to its servers are known.

    :raises UsageError: if there are several
    """
    found, *others = await named_files(request, broker)
    if others:
        raise UsageError("only one file can be read in order, but the source names several", "read them one by one")
    if not found.file.pieces:  # wrong bytes of a server that no user named could not be taken back
        found = found._replace(file=found.file.without_guests())
    if request.dialers:
        await request.dialers.learn([found])
    return found


def _settings(request: Request, rate: ReadingRate | None, past: TransferHistory) -> InOrderSettings:
    return InOrderSettings(
        strategy=request.strategy,
        widens=request.streams is None,
        most=1 if request.strategy == "single" else request.max_sources,
        keep_checksums=request.checksum != "none",
        deadline=request.deadline,
        past_errors=FinishHistory(past.path).errors,
        reading=rate,
        tries=request.retries + 1,
    )
