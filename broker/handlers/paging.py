"""Parameters of pages by key, each of which states where the next page begins."""

from typing import Annotated

from fastapi import Query

__all__ = ["Before", "Limit"]

Limit = Annotated[int, Query(ge=1, le=1000, description="how many at most")]
Before = Annotated[int | None, Query(ge=0, lt=2**63, description="what the page before said of the next")]
