"""One file from its descriptions in several catalogues. Pure."""

from collections import Counter
from collections.abc import Sequence

from coalloc.errors import TooMuch, UsageError
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import ReplicaSet

__all__ = ["merged"]

MOST_REPLICAS = 1_000
"""Maximum number of replicas of a file."""


def merged(files: Sequence[ReplicaSet], shown: Sequence[str], sure: bool = False) -> ReplicaSet:
    """Return one file with the copies of all descriptions, if they are of the same content.

    :param shown: name of each description, for messages
    :param sure: whether they are of one name in one catalogue: then a common checksum is not needed
    :raises UsageError: if they contradict each other, or nothing shows that they are of the same content
    """
    size, known = _agreed(files, shown)
    checksums = _common(files, known, sure)
    if not (checksums or sure):
        raise UsageError(
            f"{' and '.join(shown)} have no checksum in common that shows that they are the same file",
            "fetch one of them, or give the URLs of the copies",
        )
    best, *others = files
    replicas = {replica.url: replica for file in files for replica in file.replicas}
    if len(replicas) > MOST_REPLICAS:
        raise TooMuch(f"{shown[0]} has more than {MOST_REPLICAS} replicas", "give the URLs of some of them")
    return best._replace(
        replicas=tuple(replicas.values()),
        size=size,
        checksums=checksums,
        pieces=next((file.pieces for file in files if file.pieces), None),
        left_out=tuple(each for file in files for each in file.left_out),
        vouched=best.vouched or any(file.vouched for file in others),
    )


def _agreed(files: Sequence[ReplicaSet], shown: Sequence[str]) -> tuple[int | None, tuple[Checksum, ...]]:
    """Return the size and the checksums on which all descriptions agree.

    :raises UsageError: if two of them have different ones
    """
    remedy = "fetch the one that you want"
    sized: tuple[int, str] | None = None
    known: dict[str, tuple[Checksum, str]] = {}
    for file, name in zip(files, shown, strict=True):
        if file.size is not None:
            size, first = sized = sized or (file.size, name)
            if size != file.size:
                raise UsageError(f"{first} and {name} are different files: of {size} and {file.size} bytes", remedy)
        for checksum in file.checksums:
            other, first = known.setdefault(checksum.algorithm, (checksum, name))
            if other != checksum:
                what = f"their {checksum.algorithm} checksums differ"
                raise UsageError(f"{first} and {name} are different files: {what}", remedy)
    return sized and sized[0], tuple(checksum for checksum, _ in known.values())


def _common(files: Sequence[ReplicaSet], known: Sequence[Checksum], sure: bool) -> tuple[Checksum, ...]:
    """Return the checksums that all descriptions state; if they are `sure` to be of one file, that the most of them do.

    The bytes are compared with these only: a description may copy a checksum of others, and add one of other bytes.
    """
    stated = Counter(checksum.algorithm for file in files for checksum in file.checksums)
    most = max(stated.values(), default=0)
    return tuple(each for each in known if stated[each.algorithm] == (most if sure else len(files)))
