"""The check that an earlier run's journal describes the file to be fetched now, and the continuation from it. Pure.

Two runs may be of the same file if the size is the same, and either the same checksum is expected, or at least one
replica has the same URL.
"""

from collections.abc import Collection, Sequence

from coalloc.model.checksums import Extent
from coalloc.partial_file.format import Header

__all__ = ["carry_over", "staged", "why_not"]

STAGED = "staged, from "


def staged(url: str) -> str:
    """Return the origin's name for bytes of a replica that relays staged, and may have forged."""
    return f"{STAGED}{url}"


def why_not(then: Header, now: Header) -> str | None:
    """Return the reason, for users, why the state `then` cannot be used for `now`; None if some of it may be used.

    `coalloc.download.continuation` checks whether replicas have changed meanwhile.
    """
    if then.size != now.size:
        return f"the file changed from {then.size} to {now.size} bytes since its fetch began"
    expected = {checksum.algorithm: checksum.value for checksum in then.checksums}
    common = [checksum for checksum in now.checksums if checksum.algorithm in expected]
    for checksum in common:
        if expected[checksum.algorithm] != checksum.value:
            return f"the expected {checksum.algorithm} has changed since the fetch began"
    urls = {origin.url for origin in then.origins}
    if common or any(origin.url in urls for origin in now.origins):
        return None
    return "the sources have changed since the fetch began, and no checksum shows that the file is the same"


def carry_over(then: Header, extents: Sequence[Extent], now: Header) -> tuple[Header, list[Extent]]:
    """Return the header and the extents with which the fetch continues.

    The current replicas come first in the header, so that they keep their numbers. The earlier replicas that delivered
    bytes follow, even if they have the same URLs, as their content may have changed. An extent is left out if it has no
    adler32 and the machine was restarted since it was written, or if it was `staged` and no bytes are staged now, as it
    then cannot be verified.
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
