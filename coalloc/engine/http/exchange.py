"""Requests for one URL, one at a time. Redirects are followed (`redirects`); errors become coget's (`request_errors`).

Requests go over `plain` TCP if the URL and the answers allow it, else, and for all that follows a redirect or a cookie,
by httpx, which is not imported before.

The body of a redirect is not read, unless it is so short that reading it keeps the connection. Each server has a client
of its own (`clients`), and `credentials` decides what each server gets.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple, Protocol

from coalloc.credentials import Presenter
from coalloc.credentials.origins import WebOrigin
from coalloc.engine.base import EngineOptions
from coalloc.engine.http.answers import DENIED, PARTIAL, refusal
from coalloc.engine.http.clients import HTTPClients
from coalloc.engine.http.plain import (
    PlainAnswer,
    PlainConnection,
    Reached,
    UncommonAnswer,
    plain_server,
)
from coalloc.engine.http.redirects import MOST, RequestTarget, is_redirect, target_of
from coalloc.engine.http.request_errors import FailedRequest
from coalloc.engine.http.responses import Answer, origin_of, server_address
from coalloc.errors import CoallocError, PermissionRefused, SourceError, Stalled, Unsupported
from coalloc.safe_text import hide, redact
from coalloc.util import trace
from coalloc.util.addresses import class_of

if TYPE_CHECKING:
    import httpx

__all__ = ["HTTPExchange", "Signer"]


class _Answered(NamedTuple):
    """The server of a response: its scheme, and its numeric address, None if unknown."""

    scheme: str
    address: str | None


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
        self.clients = HTTPClients(self._presenter, options, self._plain, reached)
        self.redirects: list[httpx.Response] = []
        """The redirects that led to the last response, also to one that did not come."""
        self._led_to: RequestTarget | None = None
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
        return self._presenter.first if isinstance(answer, PlainAnswer) else origin_of(answer.request.url)

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
    ) -> "tuple[httpx.Response, RequestTarget]":
        """Follow all redirects; return the last response and its target.

        :param begun: the first response, if there is one already
        :raises PermissionRefused: when a redirect leads to a forbidden place
        :raises Unsupported: when a redirect is unusable
        """
        import httpx

        with self.border():
            first = place = RequestTarget(httpx.URL(self._url), self._options.dialer.policy)
        history: list[httpx.Response] = []
        self.redirects = history
        self._chain.clear()
        while True:
            answer = self._adopted(place, begun) if begun else await self._send_to(place, method, headers, content)
            begun = None
            self._chain.append(_Answered(place.url.scheme, server_address(answer)))
            if not self._is_followed(answer):
                break
            history.append(answer)
            try:
                if len(history) > MOST:
                    raise Unsupported(f"{self.shown}: more than {MOST} redirects in a row", "use another replica")
                self._led_by.append(answer.headers["location"])
                with self.border():
                    place = target_of(answer, place, self.shown, vouched=self._options.vouched)
                if self._options.leads:
                    found = await self._options.leads(str(place.url))
                    host = place.url.raw_host.decode()
                    place = place._replace(policy=place.policy.pin({host: found} if found else {}))
                await self._end_short(answer)
            finally:
                await answer.aclose()
        answer.history = history
        await self.clients.close_all_but(first, place)
        return answer, place

    def _is_followed(self, answer: Answer) -> bool:
        return self._follows and is_redirect(answer)

    async def _end_short(self, answer: "httpx.Response") -> None:
        """Read a very short body, undecoded, so that the connection is kept."""
        length = answer.headers.get("content-length", "")
        short = length.isdecimal() and len(length) < 4 and "transfer-encoding" not in answer.headers
        if short or answer.request.method == "HEAD":
            with suppress(SourceError), self.border():
                async for _ in answer.aiter_raw():
                    pass

    async def _send_to(
        self, place: RequestTarget, method: str, headers: Mapping[str, str], content: bytes | None = None
    ) -> "httpx.Response":
        self._asked_last = origin_of(place.url)
        presented = await self._presenter.headers(self._asked_last)
        with self.border():
            client = self.clients.client(place)
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
            target = redact(answer.headers["location"]) if is_redirect(answer) else ""
            parts = (str(answer.status_code), answer.reason_phrase, answer.headers.get("content-range", ""), target)
            trace.answered(redact(url), self.hidden(" ".join(filter(None, parts))))

    def _adopted(self, place: RequestTarget, begun: PlainAnswer) -> "httpx.Response":
        """Return a plain answer as one of httpx, which sends the next requests if there is a cookie."""
        from coalloc.engine.http.transport import adopted

        if "set-cookie" in begun.headers:
            self._plainly = False
        return adopted(begun, place.url, self.clients.client(place))

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
        except Exception as error:
            failed = FailedRequest(self.shown, self.hidden, lambda: self._presenter.remedy(self._asked_last))
            raise failed.error(error) from None

    async def close(self) -> None:
        """Close every connection; may be called twice."""
        if self._plain:
            self._plain.close()
        await self.clients.close_all_but()
