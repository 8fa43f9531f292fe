"""Strict parsing of request bodies; large bodies are parsed in a thread, which keeps the event loop responsive."""

import asyncio
from typing import Any

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from broker.errors import TooLarge
from broker.models.strict_json import document

__all__ = ["Exactly", "is_large"]

SMALL = 64 << 10
"""Largest body in bytes that is parsed in the event loop."""
MOST_VALUES = 1_000_000
"""Most values in a body; a parsed value takes some hundred bytes of memory, even if it is one byte of JSON."""
SHOWN = 50
"""Most faults of a body that are reported."""


def is_large(request: Request) -> bool:
    """Return whether a body may be large, according to the headers of the request."""
    length = request.headers.get("Content-Length", "")
    return int(length) > SMALL if length.isdecimal() else "Transfer-Encoding" in request.headers


class Exactly(Request):
    """A request with strict JSON: an object with a duplicate key is an error."""

    _made: Any = None

    async def body(self) -> bytes:
        """Return the whole body. :raises HTTPException: when the client disconnects before its end"""
        try:
            return await super().body()
        except ClientDisconnect:
            raise HTTPException(400, "the body is incomplete: the client has disconnected") from None

    async def json(self) -> Any:
        """Return the parsed body. :raises Invalid: when an object in it has a duplicate key"""
        return document(await self.body()) if self._made is None else self._made

    async def prepare(self, field: ModelField | None) -> None:
        """Read the whole body; parse and validate large JSON in a thread.

        :param field: the route's only body parameter, to validate against; None to only parse
        :raises TooLarge: when the body has too many values
        :raises RequestValidationError: when the body does not fit the parameter
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
            return  # the framework parses the body again, and reports the error as for small bodies
        self._body = b"{}"


def _made(body: bytes, field: ModelField | None) -> Any:
    content = document(body)
    if field is None:
        return content
    found, errors = field.validate(content, {}, loc=("body",))
    if errors:
        raise RequestValidationError(errors[:SHOWN])
    return found
