"""The check that all replicas are of the same file, before a byte of a replica is used. Pure.

Sizes must be equal, and digests from servers (HTTP Repr-Digest) too. Validators are compared only with earlier answers
of the same server, in this run and in the journal: RFC 9110 lets two servers tag equal bytes differently.

A replica that another replica's server named is left out if it contradicts others. It is used only if its bytes can be
compared with a checksum of the file, or if the server that named it may choose servers for the user.
"""

from collections.abc import Iterable, Mapping, Sequence

from coalloc.errors import (
    CoallocError,
    NoAnswer,
    NotAllowed,
    NothingToFetchFrom,
    PermissionRefused,
    ReplicaChanged,
    SourceError,
    TransferFailed,
    VerificationError,
)
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import NamedBy, ReplicaSet, Stat
from coalloc.model.validators import same_version
from coalloc.safe_text import redact

__all__ = ["Agreement", "unusable"]


class Agreement:
    """The known properties of the file, and their sources.

    :param files: description by the user, a Metalink or a catalogue; its size and checksums have
        precedence over any server's
    """

    def __init__(self, files: ReplicaSet) -> None:
        self._urls: Sequence[str] = [redact(replica.url) for replica in files.replicas]
        self._replicas = files.replicas
        self._pieces = files.pieces
        self._size_is_given = files.size is not None
        self.size = files.size
        self._sized_by = "the Metalink or the catalogue"
        self._given = {c.algorithm: c.value for c in files.checksums}
        self._digests: dict[str, tuple[str, str]] = {}
        self.first_answers: dict[int, Stat] = {}
        """First answer of each replica."""
        self.answered: list[int] = []
        """Sources whose answers agree, in order of their answers."""

    @property
    def digests(self) -> list[Checksum]:
        """The servers' digests of the whole file, which all agree."""
        return [Checksum(algorithm, value) for algorithm, (value, _) in self._digests.items()]

    @property
    def stated(self) -> dict[int, tuple[Checksum, ...]]:
        """The checksums of the whole file that each source states."""
        return {source: stat.checksums for source, stat in self.first_answers.items()}

    def stated_by(self, checksum: Checksum) -> set[int]:
        """Return the sources that state this checksum of the whole file."""
        return {source for source, stat in self.first_answers.items() if checksum in stat.checksums}

    def check(self, source: int, stat: Stat) -> None:
        """Process a server's answer about its replica.

        :raises ReplicaChanged: if it contradicts the user, the Metalink, or an earlier answer of the same server
        :raises VerificationError: if it contradicts another server, and neither the user nor a Metalink decides
        """
        url, named_by = self._urls[source], self._replicas[source].named_by
        self._check_unchanged(source, stat)
        if named_by:
            self._check_named(source, named_by, stat)
        if self.size is None:
            self.size, self._sized_by = stat.size, url
        if stat.size != self.size:
            self._refuse_size(url, stat.size)
        self._check_pieces(url, stat.size)
        if not named_by or all(self._replicas[other].named_by for other in self.answered):
            for offered in stat.checksums:
                self._check_digest(url, offered)
        if source not in self.answered:
            self.answered.append(source)

    def _check_unchanged(self, source: int, stat: Stat) -> None:
        """Check that a server's answer is the same as its first one, for instance after a lost connection."""
        before = self.first_answers.setdefault(source, stat)
        if before.size != stat.size:
            now = f"it had {before.size} bytes and has {stat.size} now"
        elif before.validator and stat.validator and not same_version(before.validator, stat.validator):
            now = "its version is different now, but its size is the same"
        elif _contradict(before.checksums, stat.checksums):
            now = "its checksum is different now"
        else:
            return
        url = self._urls[source]
        raise ReplicaChanged(
            f"{url} was changed while it was fetched: {now}", "run the same command again to fetch the new version"
        )

    def _check_named(self, source: int, named_by: NamedBy, stat: Stat) -> None:
        """Check a replica that another one's server named.

        :raises ReplicaChanged: if it contradicts others, or nothing shows that it is the same file
        """
        url, remedy = self._urls[source], "give its URL, too, if you trust it"
        if self.size not in (None, stat.size):
            raise ReplicaChanged(f"{url} has {stat.size} bytes, but {self._sized_by} says {self.size}", remedy)
        known = self._given | {algorithm: value for algorithm, (value, _) in self._digests.items()}
        if _contradict([Checksum(*each) for each in known.items()], stat.checksums):
            raise ReplicaChanged(f"{url} belongs to another file, by its checksum", remedy)
        algorithms = [*known, *([self._pieces.algorithm] if self._pieces else [])]
        scheme = self._replicas[source].url.partition(":")[0].lower()
        if named_by.secure and scheme != "https" and not any(name.startswith("sha") for name in algorithms):
            raise ReplicaChanged(f"{url} is not https, and no strong checksum of the file is known", remedy)
        if algorithms:
            return
        if scheme not in ("http", "https"):
            raise ReplicaChanged(f"{url} cannot be compared, as no checksum of the file is known", remedy)
        tags = {self.first_answers[other].validator for other in self.answered}
        if not named_by.redirecting and not ((stat.validator or "").startswith('"') and stat.validator in tags):
            raise ReplicaChanged(f"{url} has another ETag, and no checksum of the file is known", remedy)

    def _refuse_size(self, url: str, size: int) -> None:
        message = f"{url} has {size} bytes, but {self._sized_by} says {self.size}"
        if self._size_is_given:
            raise ReplicaChanged(message, "leave this URL out: it belongs to another file or version")
        raise VerificationError(f"the replicas are different files: {message}", "leave the wrong URL out")

    def _check_pieces(self, url: str, size: int) -> None:
        if (hashes := self._pieces) and len(hashes.values) != -(-size // hashes.length):
            raise ReplicaChanged(
                f"{url} has {size} bytes, but the Metalink has {len(hashes.values)} hashes of {hashes.length} each",
                "leave this URL out: it belongs to another file or version",
            )

    def _check_digest(self, url: str, offered: Checksum) -> None:
        given = self._given.get(offered.algorithm)
        if given is not None and given != offered.value:
            raise ReplicaChanged(
                f"{url} belongs to another file: its {offered.algorithm} is {offered.value}, not {given}",
                "leave this URL out, or check the expected checksum",
            )
        value, by = self._digests.setdefault(offered.algorithm, (offered.value, url))
        if value != offered.value and not self._given:  # an expected checksum decides when the file is complete
            raise VerificationError(
                f"the replicas are different files: {offered.algorithm} {offered.value} at {url}, {value} at {by}",
                "give the right checksum with --checksum ALGORITHM:HEX, or leave the wrong URL out",
            )


def _contradict(before: Iterable[Checksum], now: Iterable[Checksum]) -> bool:
    stated = {checksum.algorithm: checksum.value for checksum in now}
    return any(stated.get(checksum.algorithm, checksum.value) != checksum.value for checksum in before)


def unusable(urls: Sequence[str], errors: Mapping[int, SourceError]) -> CoallocError:
    """Return the error to show if no source is usable at the start.

    Unless this is the own error of a single source, its `causes` are the errors of all sources. Each is marked as an
    error of the source, unless it is known to come from the receiving server of a copy.
    """
    for error in errors.values():
        if not error.at_destination:
            error.blame_source()
    found = _summed(urls, errors)
    if not isinstance(found, SourceError):
        found.causes = tuple(errors.values())
    return found


def _summed(urls: Sequence[str], errors: Mapping[int, SourceError]) -> CoallocError:
    kind: type[CoallocError] = NoAnswer if any(error.transient for error in errors.values()) else NothingToFetchFrom
    if len(errors) == 1:
        (error,) = errors.values()
        # At the start, no transfer has failed yet.
        return kind(error.message, error.remedy) if error.status == TransferFailed.status else error
    if all(isinstance(error, PermissionRefused) for error in errors.values()):
        kind = NotAllowed
    reasons = [_about(urls[i], error.message) for i, error in sorted(errors.items())]
    remedies = {error.remedy: None for error in errors.values()}
    return kind(f"none of the {len(urls)} sources can be used:", "; ".join(remedies), reasons)


def _about(url: str, message: str) -> str:
    return message if url in message else f"{url}: {message}"
