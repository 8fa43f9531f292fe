"""The target before a download: whether it is the wanted file already, or must not be replaced."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from coalloc.download.agreement import Agreement
from coalloc.engine.base import Source
from coalloc.errors import TargetExists
from coalloc.model.checksums import Basis, Checksum
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.partial_file import is_comparable, matching_bytes, resembles
from coalloc.safe_text import redact
from coalloc.util.disk import in_thread
from coalloc.verify import WitnessServers, expectation

__all__ = ["ExistingTarget"]


class ExistingTarget:
    """The path of a download, where a file may exist.

    :param within: real path of a directory that the path must not leave by a symbolic link; None for no limit
    :param agreement: the answers of the servers so far
    :ivar is_wanted: whether the existing file is known to be the wanted one
    :ivar checksum: its checksum, if that is known
    :ivar basis: the origin of the checksum that it was compared with
    :ivar notice: note for the user about the existing file; None for no note
    """

    def __init__(self, path: Path, within: Path | None, file: ReplicaSet, agreement: Agreement) -> None:
        self._path = path
        self._within = within
        self._file = file
        self._agreement = agreement
        self.is_wanted = False
        self.checksum: Checksum | None = None
        self.basis: Basis = "none"
        self.notice: str | None = None

    async def has(self, wanted: Checksum | None, basis: Basis) -> bool:
        """Return whether a file exists already with the wanted checksum; then its size is the one agreed on."""
        if wanted is None:
            return False
        size = await in_thread(matching_bytes, self._path, wanted, self._agreement.size, self._within)
        if size is None:
            return False
        self.checksum, self.basis, self.is_wanted = wanted, basis, True
        self._agreement.size = size
        self.notice = f"{self._path} existed already"
        return True

    async def was_fetched(
        self, is_whole: Callable[[Mapping[str, Stat]], bool] | None, versions: Mapping[str, Stat]
    ) -> bool:
        """Return whether an earlier run fetched one of these versions, and the file has not been touched since.

        :param is_whole: as in `DownloadSettings`
        :param versions: the versions that the replicas state, by URL
        """
        if is_whole is None or self._file.checksums or self._file.pieces or not await in_thread(is_whole, versions):
            return False
        self.is_wanted = True
        self.notice = f"{self._path} was fetched before, and its servers state the same version as then"
        return True

    async def server_checksum(self, sources: Sequence[Source]) -> Checksum | None:
        """Return the answering server's checksum of the whole file, if an existing file can be compared with it."""
        size, known = self._agreement.size or 0, self._file.checksums or self._file.pieces
        if known or not await self._resembles(size):
            return None
        if stated := expectation(self._agreement.digests):
            return stated
        answered = self._agreement.answered[0]
        witness = WitnessServers(sources, lambda source: source == answered)
        value = await witness.digest(answered, "adler32", 0, size)
        if value is None:
            self.notice = (
                f"{self._path} existed already, with the same size; "
                f"it was fetched again, as {redact(sources[answered].url)} offers no checksum to compare it with"
            )
        return Checksum("adler32", value) if value else None

    async def refuse_to_replace(self, stated: Checksum | None) -> None:
        """Raise TargetExists, before a byte is fetched, if the path has other content.

        If its content may be the same, the file is fetched and compared.

        :param stated: a server's checksum of the file, which the existing file does not have; None if unknown
        """
        if not await in_thread(os.path.lexists, self._path):
            return
        known = stated or expectation(self._file.checksums)
        differs = known is not None and await in_thread(is_comparable, self._path, known, self._within)
        if differs or not await self._resembles(self._agreement.size):
            raise TargetExists(
                f"{self._path} exists, with other content",
                "use --overwrite to replace it, or choose another name with -o",
            )

    async def _resembles(self, size: int | None) -> bool:
        return await in_thread(resembles, self._path, size, self._within)
