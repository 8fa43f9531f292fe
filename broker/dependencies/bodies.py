"""Strict parsing of request bodies. Large ones are parsed in a thread, so that other requests are served meanwhile."""

import asyncio
from typing import Any

from fastapi import Request
from fastapi._compat import ModelField
from fastapi.exceptions import RequestValidationError

from broker.errors import TooLarge
from broker.models.strict_json import document

__all__ = ["Exactly", "is_large"]

SMALL = 64 << 10
"""Bytes of the largest body that is parsed without a thread."""
MOST_VALUES = 1_000_000
"""Most values in a body: each takes some hundred bytes of memory, however short it is on the wire."""
SHOWN = 50
"""Most faults of a body that are reported."""


def is_large(request: Request) -> bool:
    """Return whether a body may be large, according to the headers of the request."""
    length = request.headers.get("Content-Length", "")
    return int(length) > SMALL if length.isdecimal() else "Transfer-Encoding" in request.headers


class Exactly(Request):
    """A request whose JSON is read strictly: no object may have a key twice."""

    _made: Any = None

    async def json(self) -> Any:
        """Return the body, parsed. :raises Invalid: when an object in it has a key twice"""
        return document(await self.body()) if self._made is None else self._made

    async def prepare(self, field: ModelField | None) -> None:
        """Read the whole body. Parse and validate large JSON in a thread, so that other requests are not held up.

        :param field: body parameter of the route, if it has just one; None: the body is parsed, but not validated
        :raises TooLarge: when it has too many values
        :raises RequestValidationError: when it does not fit the parameter
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
            return  # the framework parses it again, and refuses it as it refuses small ones
        self._body = b"{}"


def _made(body: bytes, field: ModelField | None) -> Any:
    content = document(body)
    if field is None:
        return content
    found, errors = field.validate(content, {}, loc=("body",))
    if errors:
        raise RequestValidationError(errors[:SHOWN])
    return found
