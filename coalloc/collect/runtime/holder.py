"""A server that holds files to be collected: the questions that a collect job asks of every one.

`server` has the GridFTP servers, which can also receive and relay; `read_only_server` has all others.
"""

from abc import ABC, abstractmethod

from coalloc.engine.base import EngineOptions
from coalloc.errors import SourceError
from coalloc.model.replicas import Stat

__all__ = ["Holder"]


class Holder(ABC):
    """One server.

    :param label: its name as a host in networks
    :param url: its URL, with user and password if needed
    """

    def __init__(self, label: str, url: str, options: EngineOptions) -> None:
        self.label = label
        self.url = url
        self.options = options

    @property
    def wait(self) -> str | None:
        """Return why sessions wait at this machine now; None if none does."""
        return None

    @abstractmethod
    async def stat_now(self, path: str) -> Stat:
        """Return the current size and version of a file, the version as in `CollectItem.versions`.

        :raises ReplicaChanged: when the server states that the file is not the one that it described before
        :raises SourceError: when it cannot be asked
        """

    @abstractmethod
    async def checksum(self, path: str, algorithm: str, start: int, end: int) -> str | None:
        """Return the server's digest of bytes [start, end) in lower-case hex; None when it does not offer it."""

    @abstractmethod
    async def trouble(self) -> SourceError | None:
        """Return why the server cannot be used now; None if it can."""

    @abstractmethod
    async def close(self) -> None:
        """End all sessions; may be called twice."""
