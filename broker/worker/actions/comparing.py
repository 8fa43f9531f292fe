"""Comparison of a file at a server with a dataset by checksum, for sync level 3."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from urllib.parse import unquote, urlsplit

from broker.models.tasks import Work
from broker.services.collections.trees import GridFTPTree
from broker.worker.actions.copying import ALGORITHMS
from coalloc.api import storage
from coalloc.errors import CoallocError, NoSuchFile
from coalloc.util.addresses import AddressPolicy
from coalloc.util.concurrency import gather

__all__ = ["contradicts", "recorded", "same"]


def recorded(checksums: Mapping[str, str]) -> str | None:
    """Return a dataset's checksum, ALGORITHM:HEX, of an algorithm that every transfer can verify; None without one.

    >>> recorded({"quickxor": "00", "md5": "9e107d9d372bb6826bd81d3542a419d6"})
    'md5:9e107d9d372bb6826bd81d3542a419d6'
    """
    return next((f"{name}:{checksums[name]}" for name in ALGORITHMS if name in checksums), None)


async def same(
    sink: GridFTPTree, work: Work, checksums: Mapping[str, str], replicas: Sequence[str], policy: AddressPolicy
) -> bool:
    """Return whether the file at the destination, which has the size of the dataset, equals the dataset.

    A replica's server is asked only if the destination's server supports none of the dataset's checksums.

    :param checksums: checksums of the dataset, by algorithm
    :param replicas: URLs at GridFTP servers
    :param policy: address policy for these URLs
    """
    with suppress(NoSuchFile):
        for name, value in checksums.items():
            there = await sink.checksum(work.destination, name, work.size)
            if there is not None:
                return there == value
        for url in replicas:
            answer = await _same(sink, work, url, policy)
            if answer is not None:
                return answer
    return False


async def contradicts(url: str, size: int, checksums: Mapping[str, str], policy: AddressPolicy) -> bool:
    """Return whether the server of a replica reports another checksum than the catalogue; False if it reports none.

    :param size: size of the replica in bytes
    """
    with suppress(CoallocError):
        async with await storage(url, policy=policy) as source:
            for name, value in checksums.items():
                there = await source.checksum(unquote(urlsplit(url).path), name, 0, size)
                if there is not None:
                    return there != value
    return False


async def _same(sink: GridFTPTree, work: Work, url: str, policy: AddressPolicy) -> bool | None:
    """Return whether a replica equals the file at the destination; None if unknown."""
    with suppress(CoallocError):
        async with await storage(url, policy=policy) as source:
            for name in ALGORITHMS:
                ours, theirs = await gather(
                    source.checksum(unquote(urlsplit(url).path), name, 0, work.size),
                    sink.checksum(work.destination, name, work.size),
                )
                if ours is not None and theirs is not None:
                    return ours == theirs
    return None
