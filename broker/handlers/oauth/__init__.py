"""OAuth2 and OpenID Connect as Globus's clients speak them, under /v2: pages, tokens, and who somebody is.

Not in our document of the interface: clients find it by the standard's own, /.well-known/openid-configuration.
"""

from broker.handlers.oauth import authorize, clients, openid, tokens

__all__ = ["routes"]

routes = [route for module in (authorize, tokens, openid, clients) for route in module.router.routes]
