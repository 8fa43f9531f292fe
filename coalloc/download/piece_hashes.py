"""The comparison of bytes with the hashes of a Metalink's pieces. Pure."""

from coalloc.model.checksums import PieceHashes
from coalloc.util.checksums import hasher

__all__ = ["contradicts"]


def contradicts(hashes: PieceHashes, size: int, start: int, data: bytes) -> bool:
    """Return whether a piece of the file that lies within these bytes, from offset `start` on, has another hash.

    :param size: size of the file

    >>> hashes = PieceHashes("adler32", 2, ("012600c4", "00640064"))
    >>> [contradicts(hashes, 3, at, data) for at, data in ((0, b"abc"), (0, b"ab?"), (1, b"?c"), (1, b"?"))]
    [False, True, False, False]
    """
    view, length = memoryview(data), hashes.length
    for i in range(-(-start // length), min((start + len(data)) // length + 1, len(hashes.values))):
        at, end = i * length, min((i + 1) * length, size)
        if end > start + len(data):
            break
        made = hasher(hashes.algorithm)
        made.update(view[at - start : end - start])
        if made.hexdigest() != hashes.values[i]:
            return True
    return False
