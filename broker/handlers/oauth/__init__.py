"""OAuth2 and OpenID Connect for Globus clients, under /v2: pages, tokens, and identities.

These routes are not in the broker's OpenAPI document; clients find them by the standard's own discovery,
/.well-known/openid-configuration.
"""

from broker.handlers.oauth import authorize, clients, openid, tokens

__all__ = ["routes"]

routes = [route for module in (authorize, tokens, openid, clients) for route in module.router.routes]
