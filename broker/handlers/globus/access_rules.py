"""Access rules of collections, for Globus clients: `globus endpoint permission`."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Body, Request, status
from pydantic import ValidationError

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Reader, Transferrer
from broker.errors import Invalid
from broker.handlers.globus import documents, rule_documents
from broker.handlers.globus.errors import NotOffered
from broker.handlers.globus.routers import CollectionId, Document, globus_router
from broker.handlers.globus.submitted_documents import ClientDocument
from broker.models.collections import NewRule, Permissions, PrincipalType
from broker.models.faults import why

__all__ = ["router"]

router = globus_router("/endpoint/{endpoint_id}")


class GlobusAccessRule(ClientDocument):
    """A grant to a principal."""

    principal_type: PrincipalType | Literal["group"]
    principal: str = ""
    path: str = "/"
    permissions: Permissions


class Permission(ClientDocument):
    """The changeable part of a rule."""

    permissions: Permissions


@router.get("/access_list")
async def access_list(endpoint_id: CollectionId, caller: Reader, services: Services) -> Document:
    """List the access rules of a collection."""
    rules = await services.collections.rules(caller, endpoint_id)
    return documents.some("access_list", await rule_documents.access(services, rules), endpoint=str(endpoint_id))


@router.post("/access", status_code=status.HTTP_201_CREATED)
async def grant(
    endpoint_id: CollectionId,
    document: Annotated[GlobusAccessRule, Body()],
    caller: Transferrer,
    services: Services,
    request: Request,
) -> Document:
    """Grant access to a path of a collection."""
    rule = await services.collections.add_rule(caller, endpoint_id, _rule(document), replace=False)
    message = "Access rule created successfully."
    return documents.result("access_create_result", "Created", message, request.url.path, access_id=str(rule.id))


def _rule(document: GlobusAccessRule) -> NewRule:
    """Return the rule in the broker's form; drop the principal if its type has none, as Globus clients send it anyway.

    :raises Invalid: when the rule is not valid
    :raises NotOffered: when it is for a group
    """
    if document.principal_type == "group":
        raise NotOffered("Globus Groups")
    named = document.principal_type in ("identity", "role")
    try:
        return NewRule(**document.model_dump() | ({} if named else {"principal": ""}))
    except ValidationError as error:
        raise Invalid(why(error.errors()[0]), "give an identity or a role") from None


@router.get("/access/{rule_id}")
async def access(endpoint_id: CollectionId, rule_id: UUID, caller: Reader, services: Services) -> Document:
    """Return one access rule."""
    return (await rule_documents.access(services, [await services.collections.rule(caller, endpoint_id, rule_id)]))[0]


@router.put("/access/{rule_id}")
async def regrant(
    endpoint_id: CollectionId,
    rule_id: UUID,
    document: Annotated[Permission, Body()],
    caller: Transferrer,
    services: Services,
    request: Request,
) -> Document:
    """Change the permissions of a rule."""
    rule = await services.collections.rule(caller, endpoint_id, rule_id)
    changed = NewRule(**rule.model_dump(exclude={"id"}) | {"permissions": document.permissions})
    await services.collections.add_rule(caller, endpoint_id, changed)
    message = f"Access rule '{rule_id}' permissions updated successfully"
    return documents.result("result", "Updated", message, request.url.path)


@router.delete("/access/{rule_id}")
async def take_back(
    endpoint_id: CollectionId, rule_id: UUID, caller: Transferrer, services: Services, request: Request
) -> Document:
    """Revoke a grant."""
    await services.collections.remove_rule(caller, endpoint_id, rule_id)
    return documents.result("result", "Deleted", f"Access rule '{rule_id}' deleted successfully", request.url.path)
