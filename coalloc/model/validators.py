"""Validators by which servers tell versions of a file apart: entity tags, or else dates (RFC 9110, 8.8). Pure."""

__all__ = ["identifies", "is_strong", "same_version"]


def is_strong(seen: str | None) -> bool:
    """Return whether a validator is strong (RFC 9110, 8.8.1): an entity tag, not a date, which versions may share."""
    return seen is not None and seen.startswith('"')


def identifies(seen: str | None) -> bool:
    """Return whether files with this validator are taken for the same: not if it is a weak tag (RFC 9110, 8.8.1)."""
    return seen is not None and not seen.startswith("W/")


def same_version(first: str, later: str) -> bool:
    """Return whether two validators of a file, in this order, may be of the same version.

    Apache marks the tag of a file as weak until the file is a second old.

    >>> same_version('W/"1"', '"1"'), same_version('"1"', 'W/"1"'), same_version('W/"1"', '"2"')
    (True, False, False)
    """
    return later in (first, first.removeprefix("W/"))
