"""Whether an earlier run's journal is of the file that is to be fetched now, and how to go on from it. Pure.

Two runs are of the same file when its size is the same, and the same checksum is expected, or at least one
replica is the same: its URL, and its validator where it has one.
"""

from collections.abc import Collection, Sequence

from coalloc.journal.format import Header
from coalloc.model import Extent
from coalloc.urls import redact

__all__ = ["carry_over", "staged", "why_not"]

STAGED = "staged, from "


def staged(url: str) -> str:
    """Name as an origin the hosts that staged bytes of a replica, which may have made them up."""
    return f"{STAGED}{url}"


def why_not(then: Header, now: Header) -> str | None:
    """Why what `then` tells of cannot be used for `now`, as a sentence for people; None if it can."""
    if then.size != now.size:
        return f"the file has {now.size} bytes now and had {then.size} when its fetch began"
    expected = {checksum.algorithm: checksum.value for checksum in then.checksums}
    common = [checksum for checksum in now.checksums if checksum.algorithm in expected]
    for checksum in common:
        if expected[checksum.algorithm] != checksum.value:
            return f"another {checksum.algorithm} is expected now than when the fetch began"
    return None if common else _why_other_replicas(then, now)


def _why_other_replicas(then: Header, now: Header) -> str | None:
    """As `why_not`, when no checksum says that the file is the same."""
    validators = {origin.url: origin.validator for origin in then.origins}
    known = [origin for origin in now.origins if origin.url in validators]
    for origin in known:
        if None not in (origin.validator, validators[origin.url]) and origin.validator != validators[origin.url]:
            return f"{redact(origin.url)} was changed since the fetch began"
    return (
        None if known else "it is to be fetched from other places now, and no checksum says that the file is the same"
    )


def carry_over(then: Header, extents: Sequence[Extent], now: Header) -> tuple[Header, list[Extent]]:
    """The header and the extents under which the fetch goes on.

    Today's replicas come first, so that their numbers are today's; those of then that are not among them come
    after. A validator that is not known today stays. An extent without adler32 is left out if the machine was
    started again since it was written, and one that was `staged` if today nothing is: then it is not known how to
    verify it.
    """
    earlier = {origin.url: origin.validator for origin in then.origins}
    today = [origin._replace(validator=origin.validator or earlier.get(origin.url)) for origin in now.origins]
    listed = {origin.url for origin in today}
    origins = [*today, *(origin for origin in then.origins if origin.url not in listed)]
    urls = [origin.url for origin in origins]
    numbers = [urls.index(origin.url) for origin in then.origins]
    foreign = {number for number, origin in enumerate(then.origins) if _is_foreign(origin.url, listed)}
    believed = [
        extent
        for extent in extents
        if (extent.adler32 is not None or then.boot == now.boot) and extent.source not in foreign
    ]
    return (
        now._replace(origins=tuple(origins)),
        [extent._replace(source=numbers[extent.source]) for extent in believed],
    )


def _is_foreign(url: str, listed: Collection[str]) -> bool:
    return url.startswith(STAGED) and url not in listed
