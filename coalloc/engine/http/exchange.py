"""Requests for one URL, one at a time: redirects are followed, and failures become coget's errors.

Requests go over `plain` TCP if the URL and the answers allow it, else, and for all that follows a redirect or a cookie,
by httpx, which is not imported before.

The body of a redirect is not read, unless it is so short that reading it keeps the connection. Each server has a client
of its own, so that no login or cookie of one server is sent to another; `credentials` decides what each server gets.
The policy of addresses restricts redirects.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol, Union

from coalloc.credentials import Presenter
from coalloc.credentials.origins import WebOrigin
from coalloc.engine.base import EngineOptions
from coalloc.engine.http.answers import DENIED, PARTIAL, closes, refusal
from coalloc.engine.http.channel import HTTPConnection
from coalloc.engine.http.messages import NotHTTP
from coalloc.engine.http.plain import (
    Disconnected,
    PlainAnswer,
    PlainConnection,
    Reached,
    SentRequest,
    UncommonAnswer,
    plain_server,
)
from coalloc.errors import (
    CoallocError,
    ConnectionLost,
    NotThatProtocol,
    PermissionRefused,
    SourceError,
    Stalled,
    Unsupported,
)
from coalloc.safe_text import hide, redact
from coalloc.util import trace
from coalloc.util.addresses import AddressPolicy, class_of
from coalloc.util.dialer import numeric

if TYPE_CHECKING:
    import ssl

    import httpx

    from coalloc.engine.http.transport import ClientSecrets

__all__ = ["Answer", "HTTPExchange", "KeptClient", "Signer", "connection_of", "is_direct", "sent_request"]

Answer = Union["httpx.Response", PlainAnswer]
"""A response whose body has not been read yet."""

MOST = 10
"""Maximum number of redirects in a row."""
REDIRECTS = (301, 302, 303, 307, 308)
_Server = tuple[WebOrigin, AddressPolicy]


class _Answered(NamedTuple):
    """The server of a response: its scheme, and its numeric address, None if unknown."""

    scheme: str
    address: str | None


class _RequestTarget(NamedTuple):
    """A request's target: its URL, and the policy of addresses."""

    url: "httpx.URL"
    policy: AddressPolicy

    @property
    def server(self) -> "_Server":
        """The properties that all targets of one client share."""
        return _origin(self.url), self.policy


class KeptClient(NamedTuple):
    """An idle httpx client for one server, with at most one connection, and the secrets that it was made with."""

    server: "_Server"
    secrets: "ClientSecrets"
    client: "httpx.AsyncClient"
    connection: HTTPConnection

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class Signer(Protocol):
    """An author of headers that authenticate each request for one URL anew. `names` are all of these, in lower case."""

    names: Sequence[str]

    @property
    def secrets(self) -> Iterable[str]:
        """Secret values of recent headers, which servers may repeat in their text."""

    def sign(self, method: str) -> Mapping[str, str]:
        """Return the headers for a request of this method."""
        ...


class HTTPExchange:
    """Requests and responses for one URL.

    :param reached: called for each connection with the round-trip time in seconds
    :param follows: whether redirects are followed; else they are responses as any other
    :param signer: signs the requests; then redirects are not followed, as a signature is for one host, and no other
        credential is sent
    :param shown: name of the URL in messages; None for the URL without secrets
    """

    def __init__(
        self,
        url: str,
        options: EngineOptions,
        reached: Reached,
        *,
        follows: bool = True,
        signer: Signer | None = None,
        shown: str | None = None,
    ) -> None:
        self._url = url
        self._options = options
        self._reached = reached
        self._follows = follows and signer is None
        self.signer = signer
        self.shown = shown or redact(url)
        """The URL without secrets."""
        self._presenter = Presenter(url, None if signer else options.credentials, options.dialer.route)
        self._plain = plain_server(url, options.dialer, options.connect_seconds, reached)
        """The server, if plain TCP suffices for the first request."""
        self._plainly = self._plain is not None
        """Whether the next request is sent over plain TCP."""
        self._asked_last = self._presenter.first
        self._chain: list[_Answered] = []
        self._clients: dict[_Server, httpx.AsyncClient] = {}
        self.redirects: list[httpx.Response] = []
        """The redirects that led to the last response, also to one that did not come."""
        self._led_to: _RequestTarget | None = None
        self._led_by = deque[str](maxlen=MOST)
        """Targets of recent redirects, whose secrets servers may repeat in their text."""

    def hidden(self, foreign: object) -> str:
        """Return the text of a server or a library without the secrets of the requested URLs."""
        signed = self.signer.secrets if self.signer else ()
        return hide(str(foreign), self._url, *self._led_by, secrets=(*self._presenter.secrets, *signed))

    @property
    def named_by(self) -> str | None:
        """The numeric address of the server that is responsible for the last response.

        If there were redirects, it is the most public address of all servers involved; None if one is unknown.
        """
        known = [each.address for each in self._chain if each.address]
        return min(known, key=class_of) if known and len(known) == len(self._chain) else None

    @property
    def secure(self) -> bool:
        """Return whether the last response and all redirects to it came over https."""
        return all(each.scheme == "https" for each in self._chain)

    def refusal(self, answer: Answer) -> SourceError:
        """Return the error for a response."""
        status, server = answer.status_code, self._server_of_answer(answer)
        remedy = self._presenter.remedy(server) if status in DENIED else ""
        error = refusal(status, answer.reason_phrase, answer.headers, self.shown, self.hidden, remedy)
        federation = self._options.federation
        if federation and federation.issuers and status in DENIED:
            issuers = " or ".join(federation.issuers)
            remedy = f"get a token for {federation.host} from {issuers}; {error.remedy}"
            error = PermissionRefused(f"{error.message}: it needs a token from {issuers}", remedy)
        if status == 401 and self._presenter.may_be_renewed(server):
            error.permanent = False
        return error

    def _server_of_answer(self, answer: Answer) -> WebOrigin:
        return self._presenter.first if isinstance(answer, PlainAnswer) else _origin(answer.request.url)

    @asynccontextmanager
    async def answer(
        self,
        method: str,
        headers: Mapping[str, str],
        begun: PlainAnswer | None = None,
        content: bytes | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request and yield the response without its body, which the caller may read within `border`.

        :param begun: the response, if another exchange has sent the request and has detached it
        :param content: body of the request
        """
        self._plainly = self._plainly and content is None
        if begun and self._plain:
            self._plain.continue_on(begun.connection)
        signed = self.signer.sign(method) if self.signer else {}
        answer = await self._send(method, {**headers, **signed}, begun, content)
        if answer.is_success:
            self._presenter.accept(self._server_of_answer(answer))
        try:
            yield answer
        finally:
            await answer.aclose()

    def continue_on(self, connection: PlainConnection | None) -> None:
        """Send the next requests on this connection, if it can be used; then it belongs to this exchange."""
        if connection and self._plain:
            self._plain.continue_on(connection)
        elif connection:
            connection.close()

    def detach(self, answer: Answer) -> PlainAnswer | None:
        """Give up a response and its connection, for another exchange; None if it came over httpx or cannot be kept."""
        if isinstance(answer, PlainAnswer) and answer.keeps and self._plain and self._plain.detach():
            return answer
        return None

    def detach_client(self, answer: Answer) -> "KeptClient | None":
        """Give up the client of a response that was read completely, for another exchange; None if it cannot be kept.

        Only a client of the URL's own server is kept: none after a redirect, or behind a proxy.
        """
        if isinstance(answer, PlainAnswer) or answer.history or closes(answer.headers) or not is_direct(answer):
            return None
        server = _origin(answer.request.url), self._options.dialer.policy
        client = self._clients.pop(server, None)
        return KeptClient(server, self._secrets(server[0]), client, connection_of(answer)) if client else None

    def continue_with(self, kept: "KeptClient | None") -> None:
        """Send the next requests by this client, if they would be sent with its cookies and certificate; else close it.

        Then it belongs to this exchange.
        """
        if kept is None:
            return
        server, mine = kept.server, self._secrets(kept.server[0])
        own = server == (self._presenter.first, self._options.dialer.policy)
        if own and kept.secrets.jar is mine.jar and kept.secrets.certificate == mine.certificate:
            self._clients[server] = kept.client
        else:
            kept.close()

    def _secrets(self, server: WebOrigin) -> "ClientSecrets":
        from coalloc.engine.http.transport import ClientSecrets

        return ClientSecrets(self._presenter.jar(server), self._presenter.certificate(server).shown)

    async def _send(
        self, method: str, headers: Mapping[str, str], begun: PlainAnswer | None, content: bytes | None
    ) -> Answer:
        """Send a request. After a redirected GET, send later GETs directly to the target, as long as that works."""
        led_to, self._led_to = self._led_to, None
        if method == "GET" and led_to:
            with suppress(SourceError):
                answer = await self._send_to(led_to, method, headers)
                if answer.status_code in (200, PARTIAL):
                    self._led_to = led_to
                    return answer
                await answer.aclose()
        begun = begun or await self._ask_plainly(method, headers)
        if begun and not self._is_followed(begun) and "set-cookie" not in begun.headers:
            self._chain = [_Answered("http", begun.connection.peer)]
            return begun
        answer, place = await self._followed(method, headers, begun, content)
        if method == "GET" and answer.history:
            self._led_to = place
        return answer

    async def _ask_plainly(self, method: str, headers: Mapping[str, str]) -> PlainAnswer | None:
        """Send a request over plain TCP; return None if it has to be sent by httpx."""
        if self._plain is None or not self._plainly or self._presenter.has_cookies(self._presenter.first):
            return None
        headers = {**headers, **await self._presenter.headers(self._presenter.first)}
        with self.border():
            try:
                self._log_asked(self._url, method, headers)
                answer = await self._plain.ask(method, headers)
                self._log_answered(self._url, answer)
                return answer
            except UncommonAnswer:
                self._plainly = False
                return None

    async def _followed(
        self, method: str, headers: Mapping[str, str], begun: PlainAnswer | None, content: bytes | None
    ) -> "tuple[httpx.Response, _RequestTarget]":
        """Follow all redirects; return the last response and its target.

        :param begun: the first response, if there is one already
        :raises PermissionRefused: when a redirect leads to a forbidden place
        :raises Unsupported: when a redirect is unusable
        """
        import httpx

        with self.border():
            first = place = _RequestTarget(httpx.URL(self._url), self._options.dialer.policy)
        history: list[httpx.Response] = []
        self.redirects = history
        self._chain.clear()
        while True:
            answer = self._adopted(place, begun) if begun else await self._send_to(place, method, headers, content)
            begun = None
            self._chain.append(_Answered(place.url.scheme, _server_of(answer)))
            if not self._is_followed(answer):
                break
            history.append(answer)
            try:
                if len(history) > MOST:
                    raise Unsupported(f"{self.shown}: more than {MOST} redirects in a row", "use another replica")
                place = self._next(place, answer)
                if self._options.leads:
                    found = await self._options.leads(str(place.url))
                    host = place.url.raw_host.decode()
                    place = place._replace(policy=place.policy.pin({host: found} if found else {}))
                await self._end_short(answer)
            finally:
                await answer.aclose()
        answer.history = history
        await self._forget_all_but(first, place)
        return answer, place

    def _is_followed(self, answer: Answer) -> bool:
        return self._follows and _is_redirect(answer)

    def _next(self, place: _RequestTarget, answer: "httpx.Response") -> _RequestTarget:
        """Return the target of a redirect."""
        self._led_by.append(answer.headers["location"])
        with self.border():
            old, url = place.url, place.url.join(answer.headers["location"]).copy_with(userinfo=b"")
        if url.scheme not in ("http", "https") or not url.host:
            raise Unsupported(f"{self.shown}: invalid redirect to {redact(str(url))}", "use another replica")
        if old.scheme == "https" and url.scheme == "http" and not self._options.vouched:
            raise PermissionRefused(
                f"{self.shown} redirects from https to {redact(str(url))}, and the file has no trusted checksum",
                "give one with --checksum, or use a Metalink fetched over https",
            )
        if _origin(old) != _origin(url):
            return _RequestTarget(url, place.policy.named_by(_server_of(answer)))
        return _RequestTarget(url, place.policy)

    async def _end_short(self, answer: "httpx.Response") -> None:
        """Read a very short body, undecoded, so that the connection is kept."""
        length = answer.headers.get("content-length", "")
        short = length.isdecimal() and len(length) < 4 and "transfer-encoding" not in answer.headers
        if short or answer.request.method == "HEAD":
            with suppress(SourceError), self.border():
                async for _ in answer.aiter_raw():
                    pass

    async def _send_to(
        self, place: _RequestTarget, method: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> "httpx.Response":
        client = self._connected(place)
        self._asked_last = _origin(place.url)
        presented = await self._presenter.headers(self._asked_last)
        with self.border():
            request = client.build_request(method, place.url, headers={**headers, **presented}, content=content)
            self._log_asked(str(place.url), method, headers)
            answer = await client.send(request, stream=True)
            self._log_answered(str(place.url), answer)
            return answer

    def _log_asked(self, url: str, method: str, headers: Mapping[str, str]) -> None:
        if trace.is_on():
            ranges = [value for name, value in headers.items() if name.lower() == "range"]
            trace.asked(redact(url), " ".join([method, *ranges]))

    def _log_answered(self, url: str, answer: Answer) -> None:
        if trace.is_on():
            target = redact(answer.headers["location"]) if _is_redirect(answer) else ""
            parts = (str(answer.status_code), answer.reason_phrase, answer.headers.get("content-range", ""), target)
            trace.answered(redact(url), self.hidden(" ".join(filter(None, parts))))

    def _connected(self, place: _RequestTarget) -> "httpx.AsyncClient":
        from coalloc.engine.http.transport import client

        if place.server not in self._clients:
            dialer = self._options.dialer.under(place.policy)
            spare = self._plain.spare if self._plain and not self._clients else lambda: None  # of the first server
            secrets = self._secrets(_origin(place.url))
            made = client(str(place.url), dialer, self._options.connect_seconds, self._reached, spare, secrets)
            self._clients[place.server] = made
        return self._clients[place.server]

    async def _forget_all_but(self, *places: _RequestTarget) -> None:
        retained = {place.server for place in places}
        for server in self._clients.keys() - retained:
            await self._clients.pop(server).aclose()

    def _adopted(self, place: _RequestTarget, begun: PlainAnswer) -> "httpx.Response":
        """Return a plain answer as one of httpx, which sends the next requests if there is a cookie."""
        from coalloc.engine.http.transport import adopted

        if "set-cookie" in begun.headers:
            self._plainly = False
        return adopted(begun, place.url, self._connected(place))

    @asynccontextmanager
    async def timely(self, seconds: float) -> AsyncIterator[None]:
        """Limit the time of the block. :raises Stalled: when it takes longer"""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            message = f"{self.shown} did not answer within {seconds:g} s"
            raise Stalled(message, "check host and port in the URL, or try again later") from None

    @contextmanager
    def border(self) -> Iterator[None]:
        """Convert exceptions of `plain` and of the libraries to coget's errors."""
        try:
            yield
        except CoallocError:
            raise
        except NotHTTP as error:
            raise self._not_http(error) from None
        except Disconnected as error:
            raise self._lost(error) from None
        except Exception as error:
            raise self._converted(error) from None

    def _converted(self, error: Exception) -> Exception:
        """Return coget's error for an exception of the libraries; any other exception unchanged."""
        import ssl

        import httpcore
        import httpx

        match error:
            case ssl.SSLCertVerificationError():
                return PermissionRefused(
                    f"{self.shown}: the server's certificate is not trusted: {self.hidden(error.verify_message)}",
                    "set SSL_CERT_FILE to the certificate of its authority; if it has expired, tell its admin",
                )
            case ssl.SSLError() if "ALERT" in (error.reason or "") and "CERTIFICATE" in (error.reason or ""):
                return self._certificate_refused(error)
            case ssl.SSLError() | httpcore.LocalProtocolError():
                return self._not_http(error)
            case httpcore.RemoteProtocolError():
                return self._protocol_error(str(error))
            case httpcore.NetworkError() | OSError():
                return self._lost(error)
            case httpcore.ProxyError():
                what = f"{self.shown}: the proxy says {self.hidden(error)}"
                return PermissionRefused(what, "check HTTP_PROXY and NO_PROXY")
            case httpx.HTTPError() | httpx.InvalidURL():
                return Unsupported(
                    f"{self.shown}: invalid URL or redirect: {self.hidden(error)}",
                    "check the URL, or use another replica",
                )
        return error

    def _certificate_refused(self, error: "ssl.SSLError") -> PermissionRefused:
        """Return the error for a server that wants another client certificate, or one at all."""
        what = f"{self.shown}: the server refuses the client certificate: {error.reason.lower().replace('_', ' ')}"
        return PermissionRefused(what, self._presenter.remedy(self._asked_last))

    def _protocol_error(self, reason: str) -> SourceError:
        if "disconnected" in reason or "closed connection" in reason:
            return self._lost(reason)
        return self._not_http(reason)

    def _not_http(self, reason: object) -> NotThatProtocol:
        what = f"{self.shown}: not an HTTP server: {self.hidden(reason)}"
        return NotThatProtocol(what, "check scheme and port of the URL")

    def _lost(self, reason: object) -> ConnectionLost:
        """Return the error for a closed or reset connection; a server of another protocol may cause either."""
        return ConnectionLost(
            f"{self.shown}: the connection was lost: {self.hidden(reason)}",
            "try again; if this happens every time, check scheme and port of the URL",
        )

    async def close(self) -> None:
        """Close every connection; may be called twice."""
        if self._plain:
            self._plain.close()
        await self._forget_all_but()


def _is_redirect(answer: Answer) -> bool:
    return answer.status_code in REDIRECTS and "location" in answer.headers


def sent_request(answer: Answer) -> SentRequest:
    """Return the request that a response answers."""
    if isinstance(answer, PlainAnswer):
        return answer.sent
    request = answer.request
    return SentRequest(request.method, request.url.raw_path, tuple(request.headers.raw))


def connection_of(answer: Answer) -> HTTPConnection:
    """Return the connection of a response."""
    connection: HTTPConnection = (
        answer.connection if isinstance(answer, PlainAnswer) else answer.extensions["network_stream"]
    )
    return connection


def is_direct(answer: Answer) -> bool:
    """Return whether a response came without a proxy."""
    if isinstance(answer, PlainAnswer):
        return True
    from coalloc.engine.http.transport import proxied

    return not proxied(str(answer.request.url))


def _origin(url: "httpx.URL") -> WebOrigin:
    return WebOrigin.made(url.scheme, url.raw_host.decode(), url.port)


def _server_of(answer: "httpx.Response") -> str | None:
    """Return the numeric address of the server of a response; if a proxy was used, the URL's address or None."""
    if not is_direct(answer):
        return numeric(answer.request.url.raw_host.decode())
    address: str = connection_of(answer).get_extra_info("server_addr")
    return address
