"""Sites, their endpoints, datasets, and replicas of datasets at endpoints."""

from typing import Annotated, Literal, Self
from urllib.parse import quote

from pydantic import Field, StringConstraints, field_validator, model_validator

from broker.models.base import Count, Latitude, Longitude, Moment, Size, Wire
from broker.models.names import ClientMessage, Did, Named, Remark, ReplicaPath

__all__ = [
    "BadReplica",
    "CatalogueReplica",
    "ConfirmedReplica",
    "Dataset",
    "Endpoint",
    "ReplicaState",
    "Scheme",
    "Site",
    "UnconfirmedReplica",
    "address",
]

ReplicaState = Literal[
    "AVAILABLE", "UNAVAILABLE", "COPYING", "BEING_DELETED", "BAD", "SUSPICIOUS", "TEMPORARY_UNAVAILABLE"
]
"""States as in Rucio. The broker offers AVAILABLE replicas first, then SUSPICIOUS ones, and no others."""
Scheme = Literal["ftp", "gsiftp", "http", "https"]
Host = Annotated[
    str,
    StringConstraints(pattern=r"^(?:[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])$", to_lower=True),
]
Algorithm = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,20}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,256}$", to_lower=True)]
PORTS: dict[str, int] = {"ftp": 21, "gsiftp": 2811, "http": 80, "https": 443}


class Site(Wire):
    """A location of servers or clients."""

    name: Named
    latitude: Latitude | None = None
    longitude: Longitude | None = None


class Endpoint(Wire):
    """A server with a directory of replicas.

    - `read_priority`: rank among replicas, lower is better; 0 excludes the endpoint from reading
    - `write_priority`: the same for writing
    - `capacity`: limit of the server in bytes per second
    - `max_streams`: most connections to the server in one transfer
    - `latitude`, `longitude`: those of the site by default
    - `delegate`: whether workers may give the host a limited proxy certificate if it requires one; admins set it
    - `data_hosts`: other hosts that its data may come from or go to; admins set them
    """

    name: Named
    site: Named
    scheme: Scheme
    host: Host
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    prefix: ReplicaPath = "/"
    read_priority: Count = 1
    write_priority: Count = 0
    capacity: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    max_streams: Annotated[int, Field(ge=1, le=1024)] | None = None
    latitude: Latitude | None = None
    longitude: Longitude | None = None
    delegate: bool = False
    data_hosts: Annotated[tuple[Host, ...], Field(max_length=64)] = ()

    @field_validator("prefix")
    @classmethod
    def _absolute(cls, prefix: str) -> str:
        if not prefix.startswith("/"):
            raise ValueError("does not begin with a slash")
        return prefix.rstrip("/") + "/"

    @property
    def source(self) -> str:
        """The source name of its transfers: SCHEME://HOST[:PORT], without the scheme's default port."""
        port = "" if self.port in (None, PORTS[self.scheme]) else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}"

    def url(self, path: str) -> str:
        """Return the URL of a file below the endpoint's directory."""
        return address(f"{self.source}{quote(self.prefix)}", path)


def address(root: str, path: str) -> str:
    """Return the URL of a file.

    >>> address("ftp://host/data/", "2024/run 1.root")
    'ftp://host/data/2024/run%201.root'
    """
    return root + quote(path.lstrip("/"))


class Dataset(Wire):
    """A named file. `checksums` are hex digests of the whole file by algorithm, spelled like `sha256`."""

    name: Did
    size: Size | None = None
    checksums: dict[Algorithm, Digest] = Field(default_factory=dict)


class CatalogueReplica(Wire):
    """A copy of a dataset at an endpoint. `path` is below the endpoint's directory; by default the dataset's name."""

    dataset: Did
    endpoint: Named
    path: ReplicaPath | None = None
    state: ReplicaState = "AVAILABLE"
    verified_at: Moment | None = None
    reason: Remark = ""


class BadReplica(Wire):
    """A report that a replica is bad, named by its dataset and either its endpoint or its URL."""

    dataset: Did
    endpoint: Named | None = None
    url: Annotated[str, StringConstraints(max_length=3000)] | None = None
    reason: Annotated[ClientMessage, StringConstraints(min_length=1)]

    @model_validator(mode="after")
    def _where(self) -> Self:
        if (self.endpoint is None) == (self.url is None):
            raise ValueError("give either its endpoint or its URL")
        return self


class ConfirmedReplica(Wire):
    """A replica to confirm inside its collections, named by its dataset and its URL."""

    dataset: Did
    url: Annotated[str, StringConstraints(min_length=1, max_length=8000)]


class UnconfirmedReplica(Wire):
    """A replica inside collections that no owner of them and no admin has confirmed.

    `registered_by` is the subject that registered the replica; None if unknown.
    """

    dataset: Did
    endpoint: Named
    url: str
    collections: list[str]
    registered_by: str | None
