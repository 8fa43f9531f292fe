"""The endpoint manager for Globus clients: pause rules of collections, and lists of collections and access rules."""

import time
from typing import Annotated
from uuid import UUID, uuid4

from fastapi import Body, Request, status

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Admin
from broker.factory import Factory
from broker.handlers.globus import documents, rule_documents
from broker.handlers.globus.endpoint_manager import subject
from broker.handlers.globus.routers import CollectionId, Document, globus_router
from broker.handlers.globus.submitted_documents import ClientDocument, Message
from broker.models.collections import PAUSABLE, Collection, PauseRule

__all__ = ["router"]

router = globus_router("/endpoint_manager")


class PauseChange(ClientDocument):
    """The operations that are paused, and the message to users."""

    message: Message | None = None
    pause_ls: bool | None = None
    pause_mkdir: bool | None = None
    pause_rename: bool | None = None
    pause_symlink: bool | None = None
    pause_task_delete: bool | None = None
    pause_task_transfer_read: bool | None = None
    pause_task_transfer_write: bool | None = None

    def operations(self, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the paused operations after this change; operations without a value keep their state."""
        stated = {operation: getattr(self, f"pause_{operation}") for operation in PAUSABLE}
        return tuple(each for each in PAUSABLE if (each in known if stated[each] is None else stated[each]))


class NewPauseRule(PauseChange):
    """A new pause rule of a collection, for one user or all; without operations, it pauses all of them."""

    message: Message
    endpoint_id: UUID
    identity_id: UUID | None = None


@router.get("/monitored_endpoints")
async def monitored(caller: Admin, services: Services) -> Document:
    """List all collections, since admins manage all."""
    seen = await services.collections.visible(caller)
    people = await services.identities.people(each.collection.owner for each in seen)
    found = (documents.endpoint(each.collection, people, True, each.public) for each in seen)
    return documents.some("monitored_endpoints", found)


@router.get("/endpoint/{endpoint_id}")
async def endpoint(endpoint_id: CollectionId, caller: Admin, services: Services) -> Document:
    """Return one collection."""
    seen = await services.collections.one(caller, endpoint_id)
    people = await services.identities.people([seen.collection.owner])
    return documents.endpoint(seen.collection, people, True, seen.public)


@router.get("/endpoint/{endpoint_id}/access_list")
async def access_list(endpoint_id: CollectionId, caller: Admin, services: Services) -> Document:
    """List the access rules of a collection."""
    rules = await services.collections.rules(caller, endpoint_id)
    return documents.some("access_list", await rule_documents.access(services, rules), endpoint=str(endpoint_id))


@router.get("/pause_rule_list")
async def pause_rules(caller: Admin, services: Services, filter_endpoint: UUID | None = None) -> Document:
    """List the pause rules of all collections, or of one."""
    every = await _every(services)
    rules = await services.pause_rules.all(every if filter_endpoint is None else [filter_endpoint])
    return documents.some("pause_rule_list", await rule_documents.pause_rules(services, rules, every, editable=True))


@router.post("/pause_rule", status_code=status.HTTP_201_CREATED)
async def pause(document: Annotated[NewPauseRule, Body()], caller: Admin, services: Services) -> Document:
    """Pause operations at a collection."""
    await services.collections.one(caller, document.endpoint_id)
    named = any(getattr(document, f"pause_{operation}") is not None for operation in PAUSABLE)
    now = time.time()
    rule = PauseRule(
        id=uuid4(),
        collection_id=document.endpoint_id,
        subject=await subject(services, document.identity_id) if document.identity_id else None,
        message=document.message,
        operations=document.operations(()) if named else PAUSABLE,
        modified_by=caller.subject,
        created_at=now,
        modified_at=now,
    )
    return await _shown(services, await services.pause_rules.put(caller.subject, rule), await _every(services))


@router.get("/pause_rule/{pause_rule_id}")
async def pause_rule(pause_rule_id: UUID, caller: Admin, services: Services) -> Document:
    """Return one pause rule."""
    every = await _every(services)
    return await _shown(services, await services.pause_rules.one(list(every), pause_rule_id), every)


@router.put("/pause_rule/{pause_rule_id}")
async def change(
    pause_rule_id: UUID, document: Annotated[PauseChange, Body()], caller: Admin, services: Services
) -> Document:
    """Change the operations or the message of a pause rule."""
    every = await _every(services)
    known = await services.pause_rules.one(list(every), pause_rule_id)
    changed = {
        "message": known.message if document.message is None else document.message,
        "operations": document.operations(known.operations),
        "modified_by": caller.subject,
        "modified_at": time.time(),
    }
    return await _shown(
        services, await services.pause_rules.put(caller.subject, known.model_copy(update=changed)), every
    )


@router.delete("/pause_rule/{pause_rule_id}")
async def resume(pause_rule_id: UUID, caller: Admin, services: Services, request: Request) -> Document:
    """Delete a pause rule, so that its operations resume."""
    await services.pause_rules.remove(caller.subject, pause_rule_id)
    return documents.result("result", "Deleted", f"Pause rule '{pause_rule_id}' deleted", request.url.path)


async def _every(services: Factory) -> dict[UUID, Collection]:
    return {each.id: each for each in await services.collections.all()}


async def _shown(services: Factory, rule: PauseRule, collections: dict[UUID, Collection]) -> Document:
    return (await rule_documents.pause_rules(services, [rule], collections, editable=True))[0]
