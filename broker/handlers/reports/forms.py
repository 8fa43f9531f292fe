"""Forms of our own pages, and nobody else's."""

import hmac
import re
from collections.abc import Mapping

from fastapi import Request

from broker.errors import Forbidden
from broker.handlers.oauth.forms import form
from broker.models.access import Caller

__all__ = ["START", "acts", "meant", "place"]

START = "/reports"
PLACE = re.compile(r"/reports(/[A-Za-z0-9._-]{1,100}){0,2}(\?[!#-;=?-\[\]_a-z~]{0,700})?")
"""Pages of ours and no others: nobody is sent anywhere else."""


def place(said: str) -> str:
    """Where somebody goes who said so: that page of ours, else the first."""
    return said if PLACE.fullmatch(said) else START


def acts(caller: Caller, secret: str, page: str) -> Mapping[str, str]:
    """What the buttons of a page say besides what they are about; none, for who may not press them.

    :param secret: what our own forms say in this session
    """
    return {"form": secret, "back": page} if caller.may("curator") else {}


async def meant(request: Request, secret: str) -> Mapping[str, str]:
    """What was sent with a form of ours.

    :param secret: what such a form says in this session
    :raises Forbidden: when it is not ours
    """
    said = await form(request)
    if not hmac.compare_digest(said.get("form", "").encode(errors="replace"), secret.encode()):
        raise Forbidden("the form is too old, or of another page", "open the page once more")
    return said
