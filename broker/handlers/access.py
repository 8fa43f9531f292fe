"""Tokens, the audit log, and who one is."""

from typing import Annotated

from fastapi import APIRouter, Path, status

from broker.dependencies.access import Admin, Guarded, Reader
from broker.dependencies.context import Services
from broker.handlers.paging import Before, Limit
from broker.models.access import AuditEntry, Caller, IssuedToken, NewToken, TokenRecord
from broker.models.base import Wire

__all__ = ["router"]

router = APIRouter(tags=["access"], route_class=Guarded)


class Tokens(Wire):
    """All tokens, but for the tokens themselves."""

    tokens: list[TokenRecord]


class Audit(Wire):
    """A page; `next` is the `before` of the page that follows."""

    entries: list[AuditEntry]
    next: int | None


@router.get("/whoami")
async def whoami(caller: Reader) -> Caller:
    """Who the token says that one is."""
    return caller


@router.get("/tokens")
async def tokens(caller: Admin, services: Services) -> Tokens:
    """All tokens, the newest first."""
    return Tokens.model_construct(tokens=await services.access.tokens())


@router.post("/tokens", status_code=status.HTTP_201_CREATED)
async def issue(new: NewToken, caller: Admin, services: Services) -> IssuedToken:
    """A new token. It is shown only now."""
    return await services.access.issue(caller.subject, new)


@router.delete("/tokens/{number}", status_code=status.HTTP_204_NO_CONTENT)
async def revoke(number: Annotated[int, Path(ge=0, lt=2**63)], caller: Admin, services: Services) -> None:
    """End a token. Other processes of the broker may believe it for five seconds more."""
    await services.access.revoke(caller.subject, number)


@router.get("/audit")
async def audit(caller: Admin, services: Services, before: Before = None, limit: Limit = 100) -> Audit:
    """Who changed what, the newest change first."""
    page = await services.access.audit(before, limit)
    return Audit.model_construct(entries=page, next=page[-1].id if len(page) == limit else None)
