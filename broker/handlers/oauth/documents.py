"""Identities and clients as Globus writes them."""

from collections.abc import Collection
from typing import Any

from broker.models.identities import Identity, username
from broker.models.oauth import Client

__all__ = ["about", "client_document", "identity_document", "identity_set"]


def about(who: Identity, domain: str, scopes: Collection[str]) -> dict[str, Any]:
    """The claims of OpenID Connect that these scopes let one see."""
    claims: dict[str, Any] = {"sub": str(who.id), "preferred_username": username(who.subject, domain)}
    if "profile" in scopes:
        claims |= {"name": who.name, "organization": None, "identity_provider": None}
    if "email" in scopes:
        claims["email"] = who.email
    return claims


def identity_set(who: Identity) -> list[str]:
    """Nobody is several people here."""
    return [str(who.id)]


def identity_document(who: Identity, domain: str, own: bool) -> dict[str, Any]:
    """An identity.

    :param own: of who asks: others are not told the address
    """
    return {
        "id": str(who.id),
        "username": username(who.subject, domain),
        "name": who.name,
        "email": who.email if own else None,
        "organization": None,
        "identity_provider": None,
        "identity_type": "login",
        "status": "used",
    }


def client_document(client: Client) -> dict[str, Any]:
    """A client."""
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
