"""Bodies of requests, read strictly: large ones in a thread, so that others are answered meanwhile."""

import asyncio
from typing import Any

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError

from broker.errors import TooLarge
from broker.models.strict_json import document

__all__ = ["Exactly", "is_large"]

SMALL = 64 << 10
"""Bytes of a body that is read at once."""
MOST_VALUES = 1_000_000
"""Of a body: each takes some hundred bytes of memory, however few it has on the wire."""
SHOWN = 50
"""Faults of a body that are kept."""


def is_large(request: Request) -> bool:
    """Tell whether a body may be large, by what the request says of it."""
    length = request.headers.get("Content-Length", "")
    return int(length) > SMALL if length.isdecimal() else "Transfer-Encoding" in request.headers


class Exactly(Request):
    """A request whose JSON says nothing twice."""

    _made: Any = None

    async def json(self) -> Any:
        """The body. :raises Invalid: when it names something twice"""
        return document(await self.body()) if self._made is None else self._made

    async def prepare(self, field: ModelField | None) -> None:
        """Read the whole body, and make of it what the route wants, without holding up others.

        :param field: what the route wants, if it is one thing
        :raises TooLarge: when it has too many values
        :raises RequestValidationError: when it is not what the route wants
        """
        body = await self.body()
        if len(body) <= SMALL or "json" not in self.headers.get("Content-Type", ""):
            return
        values = sum(map(body.count, (b",", b"[", b"{")))
        if values > MOST_VALUES:
            raise TooLarge(f"the body has more than {MOST_VALUES} values", "send it in parts")
        try:
            self._made = await asyncio.to_thread(_made, body, field)
        except ValueError:
            return  # it is read again, and refused, where all bodies are
        self._body = b"{}"


def _made(body: bytes, field: ModelField | None) -> Any:
    said = document(body)
    if field is None:
        return said
    found, errors = field.validate(said, {}, loc=("body",))
    if errors:
        raise RequestValidationError(errors[:SHOWN])
    return found
