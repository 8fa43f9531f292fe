"""The last steps for a file: comparison with its origin, repair from there if it differs, and rename."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from coalloc.collect.methods.actions import Piece
from coalloc.collect.runtime.carrier import Carrier
from coalloc.collect.runtime.checking import FAST, ChecksumVerdict, check
from coalloc.collect.runtime.destination import Destination
from coalloc.collect.runtime.holder import Holder
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.values import Collected
from coalloc.errors import ReplicaChanged, SourceError, VerificationError
from coalloc.util.concurrency import gather

__all__ = ["Finisher"]

MENDS = 2
"""Number of attempts to fetch wrong bytes again."""


class Finisher:
    """A finisher of files whose bytes have all arrived."""

    def __init__(self, servers: Mapping[str, Holder], landing: Destination, carrier: Carrier) -> None:
        self._servers = servers
        self._landing = landing
        self._carrier = carrier
        self._loop = asyncio.get_running_loop()
        self.mended_bytes = 0

    async def finish(self, item: CollectItem, pieces: Sequence[tuple[int, int]], began: float) -> Collected:
        """Verify a file and give it its name.

        :param pieces: byte ranges [start, end), as they arrived
        :param began: start of the collect job on the loop's clock
        :raises VerificationError: when the file is wrong and cannot be repaired
        :raises ReplicaChanged: when it has changed at its origin
        :raises CoallocError: when a server cannot be asked
        """
        verdict = await self._mended(item, pieces)
        await self._see_version(item, verdict.same)
        if not verdict.same and len(item.paths) > 1:
            await self._see_one_file(item)
        outcome: Literal["collected", "there"] = "collected" if await self._landing.publish(item) else "there"
        seconds = self._loop.time() - began
        where = self._landing.place(item)
        return Collected(item.name, where, item.size, outcome, seconds, verdict.checksum, verdict.verified)

    async def _see_version(self, item: CollectItem, same: bool) -> None:
        """Check the size at the origins, as the file may have grown, and its version, as the bytes may be of two.

        :param same: whether a checksum shows that all bytes are of one version; else every origin must answer
        :raises ReplicaChanged: when size or version differ, or the server states that the file has changed
        :raises SourceError: when an origin that must answer does not
        """
        for host, path in self._holders(item) if same else item.paths.items():
            try:
                now = await self._servers[host].stat_now(path)
            except SourceError as error:
                if isinstance(error, ReplicaChanged) or not same:
                    raise
                continue
            if now.size != item.size:
                raise ReplicaChanged(
                    f"{item.name} changed from {item.size} to {now.size} bytes at its origin",
                    "run the same command again",
                )
            if same:
                return
            if item.versions.get(host) not in (None, now.validator):
                self._landing.revoke(item, 0, item.size)  # a later run could find the old version again
                raise ReplicaChanged(
                    f"{item.name} changed at its origin during the collect job", "run the same command again"
                )

    async def _see_one_file(self, item: CollectItem) -> None:
        """Check that all replicas have the same checksum, as the bytes may be of several of them.

        :raises VerificationError: when they have not, or one cannot compute it
        :raises SourceError: when a server cannot be asked
        """
        asked = (self._servers[host].checksum(path, FAST, 0, item.size) for host, path in item.paths.items())
        found = set(await gather(*asked))
        if None in found or len(found) > 1:
            raise VerificationError(
                f"{item.name} may be a mixture: its bytes come from {' and '.join(item.paths)}, "
                "and no checksum shows that these have the same file",
                "give one replica only, or its checksum in a Metalink",
            )

    async def _mended(self, item: CollectItem, pieces: Sequence[tuple[int, int]]) -> ChecksumVerdict:
        given, last = item.expected or item.pieces, len(item.paths) - 1
        refuted = 0  # servers whose file is not the expected one
        for attempt in range(MENDS + last if given else MENDS):
            verdict = await self._check(item, pieces, others=refuted < last)
            if not verdict.wrong:
                return verdict
            refuted += verdict.same or refuted > 0
            for start, end in ((0, item.size),) if refuted else verdict.wrong:
                self._landing.revoke(item, start, end)
                await self._fetch(item, Piece(item.name, start, end), (refuted or attempt) if given else 0)
        verdict = await self._check(item, pieces)
        if verdict.wrong:
            wrong = sum(end - start for start, end in verdict.wrong)
            if item.pieces and not item.expected:
                raise VerificationError(
                    f"{item.name}: {wrong} bytes do not have the hashes of the Metalink after several fetches",
                    "check the Metalink, or give a replica that is known to be good",
                )
            raise VerificationError(
                f"{item.name}: {wrong} bytes differ from its origin after several fetches",
                "check the disks of both servers, and whether another program writes the file",
            )
        return verdict

    async def _check(
        self, item: CollectItem, pieces: Sequence[tuple[int, int]], others: bool = False
    ) -> ChecksumVerdict:
        async def origin(algorithm: str, start: int, end: int) -> str | None:
            return await self._say(item, algorithm, start, end)

        async def sink(algorithm: str, start: int, end: int) -> str | None:
            return await self._landing.digest(item, algorithm, start, end)

        return await check(item, pieces, origin, sink, item.name in self._landing.relayed, others)

    async def _say(self, item: CollectItem, algorithm: str, start: int, end: int) -> str | None:
        """Return a digest from a server that holds the file; None when no server offers it.

        :raises SourceError: when no server can be asked
        """
        trouble: SourceError | None = None
        for host, path in self._holders(item):
            try:
                if digest := await self._servers[host].checksum(path, algorithm, start, end):
                    return digest
            except SourceError as error:
                trouble = error
        if trouble:
            raise trouble
        return None

    def _holders(self, item: CollectItem) -> list[tuple[str, str]]:
        """Return the servers that have the file, with its path; lost servers only if there are no others."""
        left = [(host, path) for host, path in item.paths.items() if host not in self._carrier.lost]
        return left or list(item.paths.items())

    async def _fetch(self, item: CollectItem, piece: Piece, first: int) -> None:
        """Fetch a piece from a server that holds the file.

        :param first: number of the server that is asked first, counted around

        :raises SourceError: when that fails
        :raises VerificationError: when no such server is left
        """
        self.mended_bytes += piece.size
        hosts = [host for host in item.paths if host not in self._carrier.lost]
        turn = first % len(hosts) if hosts else 0
        hosts = hosts[turn:] + hosts[:turn]
        for last, host in enumerate(hosts, 1 - len(hosts)):
            try:
                return await self._carrier.fetch(host, item, piece)
            except SourceError:
                if last == 0:
                    raise
        raise VerificationError(
            f"{item.name}: {piece.size} bytes are wrong, and no server that has the file is left", "try again later"
        )
