"""The credentials that a web server gets with a request: the user's own, as far as `decision` allows."""

import os
import time
from base64 import b64decode, b64encode
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from coalloc.credentials.origins import WebOrigin
from coalloc.model import Origin

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from coalloc.credentials.bearer import BearerToken
    from coalloc.credentials.certificates import CertificateChoice
    from coalloc.credentials.decision import RequestFacts
    from coalloc.credentials.netrc_file import NetrcFile
    from coalloc.credentials.rules import HostRules

__all__ = ["Credentials", "HeaderChoice", "Presenter"]

FRESH = 60.0
"""Seconds for which a token of oidc-agent is used without asking the agent again."""
MOST = 64
"""Maximum number of secrets that are searched for in text of servers."""
UNPROTECTED = "tokens and passwords from files and variables are sent over https only"
HOW_TO = "set BEARER_TOKEN_FILE, or see docs/howto/credentials.md"


@dataclass(frozen=True)
class HeaderChoice:
    """The headers that a server gets.

    :param what: descriptions of the credentials in them
    :param agent: account of oidc-agent, whose token is to be added; None for none
    :param kept: reasons why other credentials are not sent
    :param renewable: whether the token may be another one the next time
    """

    headers: Mapping[str, str] = field(repr=False)
    what: tuple[str, ...] = ()
    agent: str | None = None
    kept: tuple[str, ...] = ()
    renewable: bool = False


@dataclass(frozen=True)
class _Candidate:
    """A credential of the user for the header Authorization.

    :param what: description of it
    :param value: value of the header; None if it must not be sent, for the reason `problem`
    """

    what: str
    value: str | None = field(default=None, repr=False)
    problem: str = ""
    renewable: bool = False


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
        self.jars: dict[WebOrigin, CookieJar] = {}
        """Cookies by the server that set them; no other server gets them."""
        self.accepted: set[WebOrigin] = set()
        """Servers that have answered a request with success."""
        self._tokens: dict[str, tuple[float, str]] = {}

    def named(self, origin: Origin) -> Self:
        """Return the credentials for replicas of this origin; they share cookies and tokens."""
        if origin.kind == "user" or not self.typed:
            return self
        other = copy(self)
        other.typed = False
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

    def facts(self, server: WebOrigin, typed: bool) -> "RequestFacts":
        """Return what the decision about a server depends on."""
        from coalloc.credentials.decision import RequestFacts, rule_for

        return RequestFacts(server, typed, _protected(server), rule_for(server, self.rules))

    def choose(self, server: WebOrigin, typed: bool, has_login: bool) -> HeaderChoice:
        """Return the headers for a server.

        :param typed: whether the user named a URL of this server
        :param has_login: whether user and password of the URL are sent
        :raises UsageError: if the user's rules are invalid
        """
        headers = dict(self.headers) if typed else {}
        what = [f"the header {name} of --header" for name in headers]
        kept = [] if typed or not self.headers else [f"--header: you did not name {server} yourself"]
        if self.own and (server.scheme == "https" or _protected(server)):
            facts = self.facts(server, typed)
            if facts.rule and facts.protected:
                headers = {**facts.rule.headers, **headers}
                what += [f'the header {name} of [hosts."{facts.rule.place}"]' for name in facts.rule.headers]
            if not has_login and "Authorization" not in headers:
                return self._authorized(facts, headers, what, kept)
        elif self.own and not (has_login or headers):
            kept.append(UNPROTECTED)
        if has_login:
            headers.pop("Authorization", None)
            what.insert(0, "user and password of the URL")
        return HeaderChoice(headers, tuple(what), None, tuple(kept))

    def _authorized(
        self, facts: "RequestFacts", headers: dict[str, str], what: list[str], kept: list[str]
    ) -> HeaderChoice:
        """Add the first usable one of: what the rule has, the login of netrc, and the discovered token."""
        rule = facts.rule
        if rule and rule.oidc_agent:
            what.append(f'a token of oidc-agent, account {rule.oidc_agent}, of [hosts."{rule.place}"]')
            return HeaderChoice(headers, tuple(what), rule.oidc_agent, tuple(kept), renewable=True)
        for each in self._candidates(facts):
            if each.value is not None:
                headers["Authorization"] = each.value
                return HeaderChoice(headers, (*what, each.what), None, tuple(kept), each.renewable)
            kept.append(f"{each.what}: {each.problem}")
        return HeaderChoice(headers, tuple(what), None, tuple(kept))

    def _candidates(self, facts: "RequestFacts") -> Iterator[_Candidate]:
        """Yield the user's credentials, the one that is the most special to this server first."""
        from coalloc.credentials import bearer
        from coalloc.credentials.decision import why_not

        rule = facts.rule
        if rule and rule.bearer_token:
            yield _Candidate(f'the token of [hosts."{rule.place}"] in tokens.toml', f"Bearer {rule.bearer_token}")
        if rule and rule.bearer_token_file:
            what = f'the token in {rule.bearer_token_file} of [hosts."{rule.place}"]'
            yield _of_token(bearer.token_in(rule.bearer_token_file, what))
        if self.netrc.problem:
            yield _Candidate(f"the logins in {self.netrc.path}", None, self.netrc.problem)
        if login := self.netrc.logins.get(facts.server.host):
            reason = why_not("netrc", facts)
            basic = b64encode(f"{login.user}:{login.password}".encode()).decode()
            what = f"user and password in {self.netrc.path}"
            yield _Candidate(what, None if reason else f"Basic {basic}", reason or "")
        if token := bearer.discover():
            reason = why_not("token", facts)
            yield _Candidate(token.what, None, reason) if reason else _of_token(token)

    async def token(self, account: str) -> str:
        """Return a token of oidc-agent. :raises PermissionRefused: when it gives none"""
        from coalloc.credentials.oidc_agent import token_of

        asked, token = self._tokens.get(account, (0.0, ""))
        if not token or time.monotonic() > asked + FRESH:
            token = await token_of(account)
            self._tokens[account] = time.monotonic(), token
        return token


def _password(basic: str) -> str:
    """Return the password in the value of a header; empty if it is malformed."""
    with suppress(ValueError):
        return b64decode(basic).decode(errors="replace").partition(":")[2]
    return ""


def _of_token(found: "BearerToken") -> _Candidate:
    value = None if found.token is None else f"Bearer {found.token}"
    return _Candidate(found.what, value, found.problem, found.renewable)


def _protected(server: WebOrigin) -> bool:
    """Return whether nobody but a server can read what is sent to it: by https, or on this machine without a proxy."""
    if server.scheme == "https" or not server.is_loopback:
        return server.scheme == "https"
    if not any(name.lower() in ("http_proxy", "all_proxy") for name in os.environ):
        return True
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    return not (proxies.get("http") or proxies.get("all")) or bool(proxy_bypass(server.host))


class Presenter:
    """The credentials for requests of one URL, and of the redirects that begin there.

    :param url: the first URL
    :param credentials: None to send none but user and password of the URL
    """

    def __init__(self, url: str, credentials: Credentials | None) -> None:
        try:
            self.first, self._has_login = WebOrigin.of(url), "@" in urlsplit(url).netloc
        except ValueError:  # reported when the URL is asked
            self.first, self._has_login = WebOrigin("", "", 0), False
        self._credentials = credentials or Credentials(own=False)
        self._sent: deque[str] = deque(maxlen=MOST)

    def _choice(self, server: WebOrigin) -> HeaderChoice:
        typed = self._credentials.typed and server == self.first
        return self._credentials.choose(server, typed, self.has_login(server))

    def has_login(self, server: WebOrigin) -> bool:
        """Return whether user and password of the URL are for this server."""
        return self._has_login and server == self.first

    async def headers(self, server: WebOrigin) -> Mapping[str, str]:
        """Return the headers that this server gets in addition.

        :raises PermissionRefused: when oidc-agent gives no token
        :raises UsageError: if the user's rules are invalid
        """
        if not (self._credentials.own or self._credentials.headers):
            return {}
        choice = self._choice(server)
        headers = choice.headers
        if choice.agent:
            headers = {**headers, "Authorization": f"Bearer {await self._credentials.token(choice.agent)}"}
        for value in headers.values():
            self._remember(value)
        return headers

    def _remember(self, value: str) -> None:
        """Remember a header's value, and the parts of it that are secret by themselves."""
        kind, _, rest = value.partition(" ")
        password = _password(rest) if kind == "Basic" else ""
        for secret in (value, rest, password):
            if secret and secret not in self._sent:
                self._sent.append(secret)

    @property
    def secrets(self) -> Iterator[str]:
        """The secrets that were sent recently, which servers may repeat in their text."""
        yield from self._sent
        for jar in self._credentials.jars.values():
            yield from (cookie.value for cookie in jar if cookie.value)

    def certificate(self, server: WebOrigin) -> "CertificateChoice":
        """Return the client certificate for this server, if it asks for one."""
        from coalloc.credentials.certificates import CertificateChoice, choose_certificate

        if not self._credentials.own or server.scheme != "https":
            return CertificateChoice()
        typed = self._credentials.typed and server == self.first
        return choose_certificate(self._credentials.facts(server, typed))

    def jar(self, server: WebOrigin) -> "CookieJar":
        """Return the cookies of this server."""
        from http.cookiejar import CookieJar

        return self._credentials.jars.setdefault(server, CookieJar())

    def has_cookies(self, server: WebOrigin) -> bool:
        """Return whether this server has set a cookie."""
        return bool(self._credentials.jars.get(server))

    def accept(self, server: WebOrigin) -> None:
        """Record that this server has answered with success."""
        self._credentials.accepted.add(server)

    def may_be_renewed(self, server: WebOrigin) -> bool:
        """Return whether this server, which now refuses a token, has accepted one before: it may have expired."""
        return server in self._credentials.accepted and self._choice(server).renewable

    def _account(self, server: WebOrigin) -> tuple[str, str]:
        """Return what this server gets, and why it gets nothing else, as text for people; both may be empty."""
        choice, certificate = self._choice(server), self.certificate(server)
        kept = list(choice.kept)
        what = list(choice.what)
        if certificate.shown:
            what.append(f"{certificate.what}, if it asks for one")
        elif certificate.problem:
            kept.append(f"{certificate.what}: {certificate.problem}")
        return " and ".join(what), "; ".join(kept)

    def summary(self) -> str:
        """Return what the server of the URL gets, and why it gets nothing else."""
        sent, kept = self._account(self.first)
        return f"{sent or 'none'}{f' (not sent: {kept})' if kept else ''}"

    def remedy(self, server: WebOrigin) -> str:
        """Return the remedy when this server refuses access: what it got, and what it did not get."""
        sent, kept = self._account(server)
        if not (self._credentials.own or sent):
            return "ask the admin for access"
        not_sent = f" (not sent: {kept})" if kept else ""
        if sent:
            return f"coget sent {sent}{not_sent}: get a new one, or ask the admin for access"
        return f"{server} got no credential{not_sent}: {HOW_TO}"
