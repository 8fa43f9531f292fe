"""Objects of Pelican federations among the URLs of a file; `pelican` is loaded only if there are any."""

from collections.abc import Sequence

from coalloc.model.replicas import ReplicaSet
from coalloc.resolve.replica_urls import is_federated
from coalloc.util.dialer import Dialer

__all__ = ["with_caches"]


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
