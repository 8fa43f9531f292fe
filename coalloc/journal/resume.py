"""Whether an earlier run's journal is of the file that is to be fetched now, and how to go on from it. Pure.

Two runs may be of the same file when its size is the same, and the same checksum is expected, or at least one replica
has the same URL.
"""

from collections.abc import Collection, Sequence

from coalloc.journal.format import Header
from coalloc.model import Extent

__all__ = ["carry_over", "staged", "why_not"]

STAGED = "staged, from "


def staged(url: str) -> str:
    """Name as an origin the hosts that staged bytes of a replica, which may have made them up."""
    return f"{STAGED}{url}"


def why_not(then: Header, now: Header) -> str | None:
    """Why nothing of what `then` tells of can be used for `now`, as a sentence for people; None if some may.

    Whether replicas have changed meanwhile is for others to say (`coalloc.continuation`).
    """
    if then.size != now.size:
        return f"the file has {now.size} bytes now and had {then.size} when its fetch began"
    expected = {checksum.algorithm: checksum.value for checksum in then.checksums}
    common = [checksum for checksum in now.checksums if checksum.algorithm in expected]
    for checksum in common:
        if expected[checksum.algorithm] != checksum.value:
            return f"another {checksum.algorithm} is expected now than when the fetch began"
    urls = {origin.url for origin in then.origins}
    if common or any(origin.url in urls for origin in now.origins):
        return None
    return "it is to be fetched from other places now, and no checksum says that the file is the same"


def carry_over(then: Header, extents: Sequence[Extent], now: Header) -> tuple[Header, list[Extent]]:
    """The header and the extents under which the fetch goes on.

    Today's replicas come first, so that their numbers are today's. Those that gave bytes then come after, also where
    they have the same URLs: what they gave then is not what they give today. An extent without adler32 is left out if
    the machine was started again since it was written, and one that was `staged` if today nothing is: then it is not
    known how to verify it.
    """
    listed = {origin.url for origin in now.origins}
    believed = [
        extent
        for extent in extents
        if (extent.adler32 is not None or then.boot == now.boot)
        and not _is_foreign(then.origins[extent.source].url, listed)
    ]
    earlier = list(dict.fromkeys(then.origins[extent.source] for extent in believed))
    numbers = {origin: len(now.origins) + i for i, origin in enumerate(earlier)}
    return (
        now._replace(origins=(*now.origins, *earlier)),
        [extent._replace(source=numbers[then.origins[extent.source]]) for extent in believed],
    )


def _is_foreign(url: str, listed: Collection[str]) -> bool:
    return url.startswith(STAGED) and url not in listed
