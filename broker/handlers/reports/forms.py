"""Forms of our own pages, and nobody else's."""

import hmac
from collections.abc import Mapping

from fastapi import Request

from broker.errors import Forbidden
from broker.handlers.oauth.forms import form

__all__ = ["meant"]


async def meant(request: Request, secret: str) -> Mapping[str, str]:
    """What was sent with a form of ours.

    :param secret: what such a form says in this session
    :raises Forbidden: when it is not ours
    """
    said = await form(request)
    if not hmac.compare_digest(said.get("form", "").encode(errors="replace"), secret.encode()):
        raise Forbidden("the form is too old, or of another page", "open the page once more")
    return said
