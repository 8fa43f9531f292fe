"""One file from its descriptions in several catalogues. Pure."""

from collections.abc import Sequence
from itertools import combinations

from coalloc.errors import UsageError
from coalloc.model import ReplicaSet

__all__ = ["merged"]


def merged(files: Sequence[ReplicaSet], shown: Sequence[str], sure: bool = False) -> ReplicaSet:
    """Return one file with the copies of all descriptions, if they are of the same content.

    :param shown: name of each description, for messages
    :param sure: whether they are of one name in one catalogue: then a common checksum is not needed
    :raises UsageError: if they contradict each other, or nothing shows that they are of the same content
    """
    for (one, first), (other, second) in combinations(zip(files, shown, strict=True), 2):
        _compare(one, other, f"{first} and {second}")
    if not sure:
        _check_connected(files, shown)
    best, *others = files
    checksums = {checksum.algorithm: checksum for file in files for checksum in file.checksums}
    replicas = {replica.url: replica for file in files for replica in file.replicas}
    return best._replace(
        replicas=tuple(replicas.values()),
        size=next((file.size for file in files if file.size is not None), None),
        checksums=tuple(checksums.values()),
        pieces=next((file.pieces for file in files if file.pieces), None),
        left_out=tuple(each for file in files for each in file.left_out),
        vouched=best.vouched or any(file.vouched for file in others),
    )


def _compare(one: ReplicaSet, other: ReplicaSet, shown: str) -> None:
    if one.size is not None and other.size is not None and one.size != other.size:
        raise UsageError(
            f"{shown} are different files: of {one.size} and {other.size} bytes", "fetch the one that you want"
        )
    known = {checksum.algorithm: checksum.value for checksum in one.checksums}
    for checksum in other.checksums:
        if known.get(checksum.algorithm, checksum.value) != checksum.value:
            raise UsageError(
                f"{shown} are different files: their {checksum.algorithm} checksums differ",
                "fetch the one that you want",
            )


def _check_connected(files: Sequence[ReplicaSet], shown: Sequence[str]) -> None:
    """Check that each description shares a checksum with another one that is connected with the first."""
    algorithms = {checksum.algorithm for checksum in files[0].checksums}
    left = dict(enumerate(files[1:], 1))
    while found := [at for at, file in left.items() if algorithms & {each.algorithm for each in file.checksums}]:
        for at in found:
            algorithms |= {each.algorithm for each in left.pop(at).checksums}
    if left:
        raise UsageError(
            f"no common checksum shows that {shown[0]} and {shown[min(left)]} are the same file",
            "fetch one of them, or give the URLs of the copies",
        )
