"""Tokens, the audit log, and the caller's identity."""

from typing import Annotated

from fastapi import Path, Query, Response, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin, Issuer, Reader, Sent
from broker.handlers.routers import Before, Limit, own_router
from broker.models.base import Wire
from broker.models.callers import AuditEntry, Caller, IssuedToken, NewToken, TokenRecord

__all__ = ["router"]

router = own_router("access")


class Tokens(Wire):
    """Records of tokens, without the secrets."""

    tokens: list[TokenRecord]


class Audit(Wire):
    """A page of the audit log; `next` is the `before` of the following page."""

    entries: list[AuditEntry]
    next: int | None


@router.get("/whoami")
async def whoami(caller: Reader) -> Caller:
    """Return the caller that the token identifies."""
    return caller


@router.get("/tokens")
async def tokens(caller: Admin, services: Services) -> Tokens:
    """List all tokens, the newest first."""
    return Tokens.model_construct(tokens=await services.tokens.all())


@router.post("/tokens", status_code=status.HTTP_201_CREATED)
async def issue(new: NewToken, caller: Issuer, bearer: Sent, services: Services) -> IssuedToken:
    """Issue a token, which is shown only in this response. The caller needs a token issued by an admin."""
    return await services.tokens.issue(caller.subject, new, bearer.number)


@router.delete(
    "/tokens/{number}", response_model=Tokens, responses={204: {"description": "no valid token was issued with it"}}
)
async def revoke(
    number: Annotated[int, Path(ge=0, lt=2**63)],
    caller: Admin,
    services: Services,
    issued: Annotated[bool, Query(description="also revoke the tokens that were issued with this token")] = False,
) -> Tokens | Response:
    """Revoke a token, and list the valid tokens that were issued with it.

    Other processes of the broker may accept the revoked token for five more seconds.
    """
    found = await services.tokens.revoke(caller.subject, number, issued)
    if not found:
        return Response(status_code=status.HTTP_204_NO_CONTENT)
    return Tokens.model_construct(tokens=found)


@router.get("/audit")
async def audit(caller: Admin, services: Services, before: Before = None, limit: Limit = 100) -> Audit:
    """List all changes and their authors, the newest first."""
    page = await services.tokens.audit(before, limit)
    return Audit.model_construct(entries=page, next=page[-1].id if len(page) == limit else None)
