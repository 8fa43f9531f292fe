"""Response formats: NDJSON lines, and Metalink documents."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import orjson
from pydantic import BaseModel

from broker.models.forecasts import Resolved
from coalloc.api import metalink_document
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import Replica, ReplicaSet

__all__ = ["METALINK", "NDJSON", "line", "metalinked"]

NDJSON = "application/x-ndjson"
METALINK = "application/metalink4+xml"


def line(value: Resolved | Mapping[str, object]) -> bytes:
    """Return a value as one line of NDJSON."""
    return orjson.dumps(value, default=_plain, option=orjson.OPT_APPEND_NEWLINE)


def _plain(value: object) -> object:
    """Return the fields of a model, without validating them again."""
    if isinstance(value, BaseModel):
        return value.__dict__
    raise TypeError(type(value))


def metalinked(found: Sequence[Resolved], published: datetime) -> str:
    """Return a Metalink 4 document of the datasets that have replicas, in the given order."""
    files = [
        ReplicaSet(
            name=each.name.rpartition(":")[2].lstrip("/"),
            replicas=tuple(Replica(candidate.url, candidate.rank) for candidate in each.replicas),
            size=each.size,
            checksums=tuple(Checksum(*pair) for pair in each.checksums.items()),
        )
        for each in found
        if each.replicas
    ]
    return metalink_document(files, published)
