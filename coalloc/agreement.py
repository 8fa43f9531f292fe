"""Is this replica of the same file as the others? Decided before a byte of it is used. Pure.

Sizes must be equal, and digests that servers offer (HTTP Repr-Digest) too. ETags are compared only with the
same server's earlier ones, by If-Range and the journal: RFC 9110 lets two servers tag equal bytes differently.
"""

from collections.abc import Sequence

from coalloc.errors import ReplicaChanged, VerificationError
from coalloc.model import Checksum, ReplicaSet, Stat
from coalloc.urls import redact

__all__ = ["Agreement"]


class Agreement:
    """What is known of the file, and who said so.

    :param files: what the user or a Metalink said; its size and checksums count more than any server's word
    """

    def __init__(self, files: ReplicaSet) -> None:
        self._urls: Sequence[str] = [redact(replica.url) for replica in files.replicas]
        self._size_is_given = files.size is not None
        self.size = files.size
        self._sized_by = "the Metalink"
        self._given = {c.algorithm: c.value for c in files.checksums}
        self._digests: dict[str, tuple[str, str]] = {}
        self.validators: dict[int, str] = {}

    @property
    def digests(self) -> list[Checksum]:
        """What servers say of the whole file, all of them alike."""
        return [Checksum(algorithm, value) for algorithm, (value, _) in self._digests.items()]

    def check(self, source: int, stat: Stat) -> None:
        """Take in what a server says of its replica.

        :raises ReplicaChanged: if it is not of the file that the user or the Metalink describes
        :raises VerificationError: if it contradicts another server, and nobody has said which is right
        """
        url = self._urls[source]
        if self.size is None:
            self.size, self._sized_by = stat.size, url
        if stat.size != self.size:
            self._refuse_size(url, stat.size)
        for offered in stat.checksums:
            self._check_digest(url, offered)
        if stat.validator is not None:
            self.validators[source] = stat.validator

    def _refuse_size(self, url: str, size: int) -> None:
        says = f"{url} has {size} bytes, but {self._sized_by} says {self.size}"
        if self._size_is_given:
            raise ReplicaChanged(says, "leave this URL out: it is of another file or version")
        raise VerificationError(f"the replicas are not of one file: {says}", "leave the wrong URL out")

    def _check_digest(self, url: str, offered: Checksum) -> None:
        given = self._given.get(offered.algorithm)
        if given is not None and given != offered.value:
            raise ReplicaChanged(
                f"{url} is of another file: its {offered.algorithm} is {offered.value}, not {given}",
                "leave this URL out, or check the expected checksum",
            )
        value, by = self._digests.setdefault(offered.algorithm, (offered.value, url))
        if value != offered.value:
            raise VerificationError(
                f"the replicas are not of one file: by {offered.algorithm}, {url} has {offered.value} and {by} {value}",
                "give the right checksum with --checksum ALGORITHM:HEX, or leave the wrong URL out",
            )
