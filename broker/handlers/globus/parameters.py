"""Parameters that several of Globus's routes share, and large responses."""

from typing import Annotated, Any
from uuid import UUID

import orjson
from fastapi import Path, Query, Response

from broker.models.base import KEPT

__all__ = ["Answer", "CollectionId", "Fields", "Limit", "Marker", "Offset", "Order", "Said", "TaskId", "quick"]

Said = Annotated[str, Query(max_length=5000, pattern=KEPT)]
Fields = Annotated[str, Query(max_length=2000, description="of documents, with commas between")]
Order = Annotated[str, Query(max_length=500, description="FIELD, or FIELD DESC, with commas between")]
Limit = Annotated[int, Query(ge=0, le=1000)]
Offset = Annotated[int, Query(ge=0, lt=2**31)]
Marker = Annotated[int, Query(ge=0, lt=2**63, description="what the page before said of the next")]
CollectionId = Annotated[UUID, Path()]
TaskId = Annotated[UUID, Path()]
Answer = dict[str, Any]


def quick(document: Answer) -> Response:
    """Return a response that may have 100,000 entries, without validating each of them again."""
    return Response(orjson.dumps(document), media_type="application/json")
