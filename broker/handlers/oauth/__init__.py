"""OAuth2 and OpenID Connect for Globus clients, under /v2: pages, tokens, and identities.

The broker's OpenAPI document leaves these routes out; clients find them through the standard discovery at
/.well-known/openid-configuration.
"""

from broker.handlers.oauth import authorize, clients, openid, tokens

__all__ = ["routes"]

routes = [route for module in (authorize, tokens, openid, clients) for route in module.router.routes]
