"""Recognition of objects of Pelican federations among the URLs of a file; `pelican` finds their replicas."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from coalloc.model import ReplicaSet
from coalloc.util.dialer import Dialer

__all__ = ["FEDERATED", "is_federated", "with_caches"]

FEDERATED = ("osdf", "pelican", "stash")
"""Schemes of objects in federations, whose directors name the replicas."""


def is_federated(url: str) -> bool:
    """Return whether a URL names an object of a federation."""
    return urlsplit(url).scheme in FEDERATED


async def with_caches(file: ReplicaSet, dialers: Sequence[Dialer]) -> ReplicaSet:
    """Return a file that the user named with the caches of each object of a federation in the place of its URL.

    :param dialers: dialers over all routes to the servers
    :raises UsageError: if the URL of an object is malformed
    :raises SourceError: if all replicas are objects whose federations fail
    """
    if not any(is_federated(replica.url) for replica in file.replicas):
        return file
    from coalloc.resolve import pelican  # imported here because it imports all of http

    return await pelican.expanded(file, dialers)
