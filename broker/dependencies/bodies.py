"""Bodies of requests, read strictly."""

from typing import Any

from fastapi import Request

from broker.models.strict_json import document

__all__ = ["Exactly"]


class Exactly(Request):
    """A request whose JSON says nothing twice."""

    async def json(self) -> Any:
        """The body. :raises Invalid: when it names something twice"""
        return document(await self.body())
