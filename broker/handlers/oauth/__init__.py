"""OAuth2 and OpenID Connect as Globus's clients speak them, under /v2: pages, tokens, and who somebody is."""

from fastapi import APIRouter

from broker.handlers.oauth import authorize, clients, openid, tokens

__all__ = ["router"]

router = APIRouter(include_in_schema=False)
"""Not in our document of the interface: clients find it by the standard's own, /.well-known/openid-configuration."""
for module in (authorize, tokens, openid, clients):
    router.include_router(module.router)
