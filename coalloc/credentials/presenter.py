"""Presentation of credentials to the servers of one URL, and of the redirects that begin there."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from coalloc.credentials.basic import login_of, password_in
from coalloc.credentials.known import Credentials, is_protected
from coalloc.credentials.origins import WebOrigin
from coalloc.model.routes import DIRECTLY

if TYPE_CHECKING:
    from http.cookiejar import CookieJar

    from coalloc.credentials.certificates import CertificateChoice
    from coalloc.credentials.choice import HeaderChoice
    from coalloc.credentials.decision import RequestFacts

__all__ = ["Presenter"]

MOST = 64
"""Maximum number of secrets that are searched for in text of servers."""
SECRET_COOKIE = 8
"""Minimum characters of a cookie that is hidden; shorter ones are words such as "true"."""
HOW_TO = "set BEARER_TOKEN_FILE, or see docs/howto/credentials.md"


class Presenter:
    """The credentials for requests of one URL, and of the redirects that begin there.

    :param url: the first URL
    :param credentials: None to send none but user and password of the URL
    :param route: function that returns the route to a host, as that of a dialer
    """

    def __init__(
        self, url: str, credentials: Credentials | None, route: Callable[[str], str] = lambda host: DIRECTLY
    ) -> None:
        try:
            self.first, self._login = WebOrigin.of(url), login_of(url)
        except ValueError:  # reported when the URL is asked
            self.first, self._login = WebOrigin("", "", 0), None
        self._credentials = credentials or Credentials(own=False)
        self._route = route
        self._sent: deque[str] = deque(maxlen=MOST)
        self._jars: dict[WebOrigin, CookieJar] = {}

    def _choice(self, server: WebOrigin) -> "HeaderChoice":
        from coalloc.credentials.choice import HeaderChoice, choose_headers

        if self._credentials.certificates_only:
            return HeaderChoice({})
        return choose_headers(self._credentials, self._facts(server), self._login if server == self.first else None)

    def _facts(self, server: WebOrigin) -> "RequestFacts":
        facts, first = self._credentials.facts(server, self._protects(server)), server == self.first
        return facts._replace(typed=self._credentials.typed and first, federated=self._credentials.federated and first)

    def _protects(self, server: WebOrigin) -> bool:
        return is_protected(server) and (server.scheme == "https" or self._route(server.host) == DIRECTLY)

    async def headers(self, server: WebOrigin) -> Mapping[str, str]:
        """Return the headers with credentials that this server gets.

        :raises PermissionRefused: when oidc-agent gives no token
        :raises UsageError: if the user's rules are invalid
        """
        if not (self._login or self._credentials.headers or (self._credentials.own and self._protects(server))):
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
        for secret in (value, value.partition(" ")[2], password_in(value)):
            if secret and secret not in self._sent:
                self._sent.append(secret)

    @property
    def secrets(self) -> Iterator[str]:
        """The secrets that were sent recently, which servers may repeat in their text."""
        yield from self._sent
        for jar in self._jars.values():
            yield from (value for cookie in jar if len(value := cookie.value or "") >= SECRET_COOKIE)

    def certificate(self, server: WebOrigin) -> "CertificateChoice":
        """Return the client certificate for this server, if it asks for one."""
        from coalloc.credentials.certificates import CertificateChoice, choose_certificate

        if not self._credentials.own or server.scheme != "https":
            return CertificateChoice()
        return choose_certificate(self._facts(server))

    def jar(self, server: WebOrigin) -> "CookieJar":
        """Return the cookies of this server."""
        from coalloc.credentials.cookies import cookie_jar

        jar = self._jars[server] = self._credentials.jars.setdefault(server, cookie_jar())
        return jar

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
            kept.append(f"{certificate.what}, because {certificate.problem}")
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
        if sent:
            not_sent = f", but not {kept}" if kept else ""
            return f"ask the admin for access, or get a new credential: {server} got {sent}{not_sent}"
        return f"{server} did not get {kept}" if kept else f"{HOW_TO}: {server} got no credential"
