"""OpenID Connect: discovery, signing keys, and claims about the user."""

from typing import Any

from broker.dependencies.context import Home, Services
from broker.dependencies.route_policies import Named, Open, Sent
from broker.handlers.oauth.documents import about, identity_document
from broker.handlers.routers import page_router
from broker.models.oauth import SCOPES, VIEW_IDENTITY_SET
from broker.services.auth.keys import ALGORITHM

__all__ = ["router"]

router = page_router()


@router.get("/.well-known/openid-configuration")
async def configuration(caller: Open, home: Home) -> dict[str, Any]:
    """Return the discovery document."""
    methods = ["client_secret_basic", "client_secret_post"]
    return {
        "issuer": home,
        "authorization_endpoint": f"{home}/v2/oauth2/authorize",
        "token_endpoint": f"{home}/v2/oauth2/token",
        "revocation_endpoint": f"{home}/v2/oauth2/token/revoke",
        "introspection_endpoint": f"{home}/v2/oauth2/token/introspect",
        "userinfo_endpoint": f"{home}/v2/oauth2/userinfo",
        "jwks_uri": f"{home}/jwk.json",
        "scopes_supported": list(SCOPES),
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "code_challenge_methods_supported": ["S256"],
        "token_endpoint_auth_methods_supported": [*methods, "none"],
        "introspection_endpoint_auth_methods_supported": methods,
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [ALGORITHM],
        "claims_supported": ["sub", "preferred_username", "name", "email", "auth_time", "nonce"],
        "authorization_response_iss_parameter_supported": True,
    }


@router.get("/jwk.json")
async def keys(caller: Open, services: Services) -> dict[str, Any]:
    """Return the public signing keys, the current one first."""
    return await services.keys.shown()


@router.get("/v2/oauth2/userinfo")
async def userinfo(caller: Named, bearer: Sent, services: Services) -> dict[str, Any]:
    """Return the claims about the user who sent the token."""
    who = await services.identities.of(caller.subject)
    claims = about(who, services.identities.usernames, bearer.scopes)
    if VIEW_IDENTITY_SET in bearer.scopes:
        own = identity_document(who, services.identities.usernames, "email" in bearer.scopes)
        claims["identity_set"] = [{**own, "sub": own["id"]}]
    return claims
