"""Clients and identities, at the paths that Globus clients use."""

from typing import Annotated, Any
from uuid import UUID

from fastapi import Query, Request, status
from pydantic import BaseModel, Field

from broker.dependencies.context import Services
from broker.dependencies.route_policies import Consenting, Identified, Open, Sent
from broker.errors import Forbidden, Invalid
from broker.factory import Factory
from broker.handlers.oauth.documents import client_document, consent_document, identity_document
from broker.handlers.oauth.forms import address, authenticated, body
from broker.handlers.routers import page_router
from broker.models.base import STORABLE
from broker.models.names import Called
from broker.models.oauth import VIEW_CONSENTS, Client
from broker.models.strict_json import document

__all__ = ["router"]

router = page_router("/v2/api")
MOST = 500
"""Most identities in one request."""


class NewClientName(BaseModel):
    """The name of a new client; all other fields that Globus clients send are ignored."""

    name: Annotated[Called, Field(min_length=1, max_length=100)]


class ClientRegistration(BaseModel):
    """A client that registers itself."""

    client: NewClientName


@router.post("/clients", status_code=status.HTTP_201_CREATED)
async def register(request: Request, caller: Open, services: Services) -> dict[str, Any]:
    """Register a client for logins, and show its secret once. The globus CLI makes one for each home directory."""
    try:
        registration = ClientRegistration.model_validate(document(await body(request)))
    except ValueError:
        raise Invalid("a client needs a name of at most 100 characters", 'send {"client": {"name": "..."}}') from None
    client, secret = await services.clients.register(registration.client.name, address(request))
    credential = {"client": client.id, "secret": secret, "id": client.id, "name": "made with the client"}
    return {"client": client_document(client), "included": {"client_credential": credential}}


@router.get("/clients/{number}")
async def client(number: str, request: Request, caller: Open, services: Services) -> dict[str, Any]:
    """Return the requesting client."""
    return {"client": client_document(await _itself(number, request, services))}


@router.delete("/clients/{number}")
async def remove(number: str, request: Request, caller: Open, services: Services) -> dict[str, Any]:
    """Revoke the requesting client, and all its tokens."""
    client = await _itself(number, request, services)
    await services.clients.revoke(client.id, client.id)  # the log shows its id, as clients choose their names
    return {"client": client_document(client)}


@router.get("/identities")
async def identities(
    caller: Identified,
    services: Services,
    ids: Annotated[str, Query(max_length=20_000)] = "",
    usernames: Annotated[str, Query(max_length=100_000, pattern=STORABLE)] = "",
) -> dict[str, Any]:
    """Return the known identities with these UUIDs or user names, both separated by commas."""
    if bool(ids) == bool(usernames):
        raise Invalid("give either ids or usernames", "send one of the two")
    words = [word.strip() for word in (ids or usernames).split(",")]
    if len(words) > MOST:
        raise Invalid(f"{len(words)} identities are more than {MOST}", "send several requests")
    stored = services.identities
    found = await (stored.by_id(_uuids(words)) if ids else stored.by_username(words))
    return {"identities": [identity_document(who, stored.usernames, who.subject == caller.subject) for who in found]}


@router.get("/identities/{number}/consents")
async def consents(
    number: str,
    caller: Consenting,
    bearer: Sent,
    services: Services,
    every: Annotated[bool, Query(alias="all")] = False,
) -> dict[str, Any]:
    """Return the caller's consents for the requesting client, or for all clients if the token allows that."""
    who = (await services.identities.of(caller.subject)).id
    if number.lower() != str(who):
        raise Forbidden("users may only see their own consents", f"request those of {who}")
    if every and VIEW_CONSENTS not in bearer.scopes:
        raise Forbidden("the token lacks the required scope", f"request the scope {VIEW_CONSENTS}")
    given = await services.grants.consents(caller.subject, None if every else bearer.client)
    return {"consents": [consent_document(each, who) for each in given]}


def _uuids(words: list[str]) -> list[UUID]:
    try:
        return [UUID(word) for word in words]
    except ValueError:
        raise Invalid("one of the ids is not a UUID") from None


async def _itself(number: str, request: Request, services: Factory) -> Client:
    """Return the requesting client. :raises OAuthRefused: :raises Forbidden: when `number` is another client's id"""
    client = await authenticated(request, {}, services)
    if client.id != number.lower():
        raise Forbidden("a client may only see itself", "send the credentials of that client")
    return client
