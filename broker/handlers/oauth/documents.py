"""Identities, clients and consents in Globus's form."""

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid5

from broker.models.identities import Identity
from broker.models.oauth import Client, Consent
from broker.models.subjects import Usernames

__all__ = ["about", "client_document", "consent_document", "identity_document", "identity_set"]

SCOPES = UUID("0d3b0f5c-6b0e-5a0b-8f0e-9a6a3c1f7d52")
"""The namespace of the UUIDs of scopes, which Globus clients require."""


def about(who: Identity, usernames: Usernames, scopes: Collection[str]) -> dict[str, Any]:
    """Return the OpenID Connect claims about a user that the scopes permit."""
    claims: dict[str, Any] = {"sub": str(who.id), "preferred_username": usernames.of(who.subject)}
    if "profile" in scopes:
        claims |= {"name": who.name, "organization": None, "identity_provider": None}
    if "email" in scopes:
        claims["email"] = who.email
    return claims


def identity_set(who: Identity) -> list[str]:
    """Return the UUIDs of all identities of a user; at this broker, each user has one."""
    return [str(who.id)]


def identity_document(who: Identity, usernames: Usernames, own: bool) -> dict[str, Any]:
    """Return the document of an identity.

    :param own: whether it is the caller's own, which includes the email address
    """
    return {
        "id": str(who.id),
        "username": usernames.of(who.subject),
        "name": who.name,
        "email": who.email if own else None,
        "organization": None,
        "identity_provider": None,
        "identity_type": "login",
        "status": "used",
    }


def consent_document(given: Consent, who: UUID) -> dict[str, Any]:
    """Return the document of a user's consent to a client.

    Its id is a hash of the user, the client and the scope. No consent depends on another.
    """
    identity = f"{who} {given.client} {given.scope}".encode()
    number = int.from_bytes(hashlib.blake2b(identity, digest_size=6).digest())
    created, used = (datetime.fromtimestamp(at, UTC).isoformat() for at in (given.created_at, given.used_at))
    return {
        "id": number,
        "client": given.client,
        "scope": str(uuid5(SCOPES, given.scope)),
        "scope_name": given.scope,
        "effective_identity": str(who),
        "dependency_path": [number],
        "status": "approved",
        "created": created,
        "updated": created,
        "last_used": used,
        "allows_refresh": given.refreshed,
        "auto_approved": not given.interactive,
        "atomically_revocable": False,
    }


def client_document(client: Client) -> dict[str, Any]:
    """Return the document of a client."""
    own = [] if client.role is None else ["client_credentials"]
    return {
        "id": client.id,
        "name": client.name,
        "public_client": client.public,
        "client_type": "public_installed_client" if client.public else "confidential_client",
        "grant_types": ["authorization_code", "refresh_token", *own],
        "redirect_uris": [],
        "scopes": [],
        "fqdns": [],
        "links": {"privacy_policy": None, "terms_and_conditions": None},
        "parent_client": None,
        "preselect_idp": None,
        "project": None,
        "prompt_for_named_grant": False,
        "required_idp": None,
        "userinfo_from_effective_identity": True,
        "visibility": "private",
    }
