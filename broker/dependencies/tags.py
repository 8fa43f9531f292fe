"""Entity tags: versions of resources, and the check of `If-Match` before a change (RFC 9110, 13.1.1)."""

import hashlib
from collections.abc import MutableMapping, Sequence
from typing import Any

from fastapi import Request, Response

from broker.errors import Outdated

__all__ = ["matched", "tagged"]

SAME = ("type", "asgi", "http_version", "scheme", "path", "raw_path", "server", "client", "root_path")


def tagged(answer: Response) -> Response:
    """Return the response to a GET, with an ETag if its status is 200 and it is not a stream."""
    if answer.status_code == 200 and "ETag" not in answer.headers and isinstance(getattr(answer, "body", None), bytes):
        answer.headers["ETag"] = _tag(bytes(answer.body))
    return answer


def _tag(body: bytes) -> str:
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


async def matched(request: Request, if_match: Sequence[str]) -> None:
    """Check that the resource has one of the tags in If-Match, for this caller.

    :param if_match: values of all If-Match headers; weak tags and an empty list match nothing
    :raises Outdated: when the resource has none of these tags, or does not exist
    """
    known = await _now(request)
    given = {each.strip() for header in if_match for each in header.split(",")}
    if known is None or not (given == {"*"} or known in given):
        raise Outdated(
            "the resource has changed: its ETag is not the one in If-Match", "get it again, and send the new ETag"
        )


async def _now(request: Request) -> str | None:
    """Return the tag of the resource, from an internal GET; None if the status is not 200."""
    status, body = 0, b""
    headers = [each for each in request.scope["headers"] if each[0] in (b"authorization", b"host", b"cookie")]
    scope = {name: request.scope[name] for name in SAME if name in request.scope}

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        status = message.get("status", status)
        body += message.get("body", b"")

    await request.app({**scope, "method": "GET", "query_string": b"", "headers": headers}, receive, send)
    return _tag(body) if status == 200 else None
