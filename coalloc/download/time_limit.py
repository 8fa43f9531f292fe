"""A limit for the time that a file may take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from coalloc.errors import TransferFailed

__all__ = ["time_limit"]


@asynccontextmanager
async def time_limit(seconds: float | None, output: object) -> AsyncIterator[None]:
    """Cancel the block after so many seconds; None for no limit.

    :param output: the destination, for the message
    :raises TransferFailed: when the time is over
    """
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise TransferFailed(
            f"{output} is not complete after {seconds:g} s",
            "allow more time with --max-time, and run the command again",
        ) from None
