"""The credentials that a command may use: the headers that the user gives, and the user's own, read when needed."""

import asyncio
import os
import time
from collections.abc import Mapping
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Self

from coalloc.credentials.origins import WebOrigin
from coalloc.model.replicas import Origin

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from coalloc.credentials.decision import RequestFacts
    from coalloc.credentials.netrc_file import NetrcFile
    from coalloc.credentials.rules import HostRules

__all__ = ["Credentials", "is_protected"]

FRESH = 60.0
"""Seconds for which a token of oidc-agent is used without asking the agent again."""


class Credentials:
    """The credentials that one command, or one transfer, may use. Files are read when a server may get their content.

    :param headers: headers for the servers of the URLs that the user names
    :param own: whether the user's tokens, logins and certificates may be used, from the environment and from files
    """

    def __init__(self, headers: Mapping[str, str] | None = None, *, own: bool = True) -> None:
        self.headers = headers or {}
        self.own = own
        self.typed = True
        """Whether the user named the URLs that are asked with these credentials."""
        self.federated = False
        """Whether they are of caches that the director of a federation names, which wants tokens, and which the user
        named."""
        self.certificates_only = False
        """Whether no headers are sent, so that only certificates may be shown."""
        self.jars: dict[WebOrigin, CookieJar] = {}
        """Cookies by the server that set them; no other server gets them."""
        self.accepted: set[WebOrigin] = set()
        """Servers that have answered a request with success."""
        self._tokens: dict[str, tuple[float, str]] = {}
        self._asking: dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = {}

    def named(self, origin: Origin) -> Self:
        """Return the credentials for replicas of this origin; they share cookies and tokens."""
        if origin.kind == "user" or not self.typed:
            return self
        other = copy(self)
        other.typed = False
        other.federated = bool(origin.federation and origin.federation.needs_token)
        return other

    def for_certificates(self) -> Self:
        """Return the credentials for a server to which the user logs in by certificate: no others are sent."""
        other = copy(self)
        other.certificates_only = True
        return other

    @cached_property
    def rules(self) -> "HostRules":
        """The user's rules. :raises UsageError: if they are invalid"""
        from coalloc.credentials.rules import read_rules

        return read_rules() if self.own else {}

    @cached_property
    def netrc(self) -> "NetrcFile":
        from coalloc.credentials.netrc_file import read_netrc

        return read_netrc()

    def facts(self, server: WebOrigin, protected: bool) -> "RequestFacts":
        """Return what the decision about a server depends on, as if nobody had named it.

        :raises UsageError: if the user's rules are invalid
        """
        from coalloc.credentials.decision import RequestFacts, rule_for

        return RequestFacts(server, False, protected, rule_for(server, self.rules) if protected else None)

    async def token(self, account: str) -> str:
        """Return a token of oidc-agent. :raises PermissionRefused: when it gives none"""
        from coalloc.credentials.oidc_agent import token_of

        key = asyncio.get_running_loop(), account
        async with self._asking.setdefault(key, asyncio.Lock()):  # one process, not one for each connection
            asked, token = self._tokens.get(account, (0.0, ""))
            if not token or time.monotonic() > asked + FRESH:
                token = await token_of(account)
                self._tokens[account] = time.monotonic(), token
        return token


def is_protected(server: WebOrigin) -> bool:
    """Return whether nobody but a server can read what is sent to it: by https, or on this machine without a proxy."""
    if server.scheme == "https" or not server.is_loopback:
        return server.scheme == "https"
    if not any(name.lower() in ("http_proxy", "all_proxy") for name in os.environ):
        return True
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    return not (proxies.get("http") or proxies.get("all")) or bool(proxy_bypass(server.host))
