"""Requests to a broker: complete answers, and streams of events."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from coalloc.config import LOOPBACK, BrokerAccess, token_place
from coalloc.errors import CoallocError, NoAnswer, NotAllowed, NothingToFetchFrom, UsageError
from coalloc.util import trace
from coalloc.util.documents import document

if TYPE_CHECKING:
    import httpx

__all__ = ["NONSENSE", "BrokerConflict", "BrokerConnection", "BrokerRefuses", "BrokerSilent", "ServerEvent"]

SECONDS = 10.0
"""Time limit in seconds for connecting, and between bytes."""
WHOLE = 60.0
"""Time limit in seconds for one answer."""
QUIET = 60.0
"""Seconds without a byte after which a stream is given up; a broker sends something at least every 15 s."""
LARGEST = 16 << 20
"""Default limit for the bytes of one answer; parsing takes up to twenty times as much memory."""
LONGEST = 1 << 20
"""Most bytes of one event."""
PATH = "/broker/v1"
NONSENSE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexError, OverflowError)
"""The exceptions raised when a malformed answer is read."""


class BrokerRefuses(CoallocError):
    """A request that the broker rejects, and would reject again.

    :ivar answer: the whole answer, which nothing has checked
    """

    status = 2
    code = "broker_refuses"
    answer: Mapping[str, Any] = {}


class BrokerConflict(BrokerRefuses):
    """A request about something that the broker does not have (404), or has in another state (409)."""


class BrokerSilent(NoAnswer):
    """A broker that does not answer, or is temporarily unable to; a later request may succeed."""


class ServerEvent(NamedTuple):
    """A server-sent event: its name, its id, and its data, parsed from JSON."""

    name: str
    id: str
    data: Any


class BrokerConnection:
    """One broker, accessed as this user.

    :param remedy: advice for the user when the broker does not answer
    """

    def __init__(self, access: BrokerAccess, remedy: str) -> None:
        self.access = access
        self.address: str | None = None
        """Numeric address of the broker, once it has answered; None if a proxy connects to it."""
        self._remedy = remedy

    @property
    def secure(self) -> bool:
        """Return whether the connection protects answers from being changed: HTTPS, or a broker on this machine."""
        return urlsplit(self.access.url).scheme == "https" or self._near

    @property
    def _near(self) -> bool:
        return urlsplit(self.access.url).hostname in LOOPBACK

    async def ask(self, method: str, path: str, seconds: float = WHOLE, largest: int = LARGEST, **what: Any) -> str:
        """Return the whole answer.

        :param seconds: time limit for the whole request
        :param largest: most bytes of the answer
        :param what: arguments for httpx: `params`, `json`, `content`
        :raises BrokerSilent: :raises BrokerRefuses: :raises NotAllowed:
        """
        async with self._open(method, path, seconds, **what) as answer:
            text = await self._read(answer, largest)
        self._refuse(answer, text)
        return text

    async def events(self, path: str, seen: str = "") -> AsyncGenerator[ServerEvent, None]:
        """Stream the events that follow the one with the id `seen`. Raises the same errors as `ask`."""
        headers = {"Last-Event-ID": seen} if seen else {}
        async with self._open("GET", path, None, headers=headers) as answer:
            if not answer.is_success:
                self._refuse(answer, await self._read(answer, LARGEST))
            async with aclosing(self._lines(answer)) as lines:
                fields: dict[str, str] = {}
                async for line in lines:
                    name, _, value = line.partition(":")
                    if name in ("event", "id", "data"):
                        fields[name] = value.removeprefix(" ")  # a broker's data are always one line
                    elif not line and "data" in fields:
                        yield self._event(fields)
                        fields = {}

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, whole: float | None, **what: Any
    ) -> "AsyncGenerator[httpx.Response, None]":
        """Send a request and yield the answer when it begins; all of it must arrive within `whole` seconds."""
        import httpx

        trace.asked(self.access.url, f"{method} {path}")
        try:
            async with (
                asyncio.timeout(whole),
                self._client(SECONDS if whole else QUIET) as client,
                client.stream(method, f"{self.access.url}{PATH}{path}", **what) as answer,
            ):
                trace.answered(self.access.url, f"{answer.status_code} {answer.reason_phrase}")
                self.address = self._peer(answer)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
            reason = str(error) or type(error).__name__
            raise BrokerSilent(f"the broker {self.access.url} does not answer: {reason}", self._remedy) from None

    def _client(self, quiet: float) -> "httpx.AsyncClient":
        """Return a client that waits `quiet` seconds for the next bytes.

        Redirects are not followed: they could send the token to another server. Requests to this machine bypass
        proxies, which would see unencrypted content.

        :raises BrokerSilent: when a proxy in the environment cannot be used
        """
        import httpx

        # A compressed answer could fill the memory before its bytes are counted.
        headers = {"Accept-Encoding": "identity"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        seconds = httpx.Timeout(SECONDS, read=quiet)
        try:
            return httpx.AsyncClient(timeout=seconds, headers=headers, trust_env=not self._near)
        except (httpx.InvalidURL, ImportError, ValueError):  # their text may show a part of the proxy's password
            what = f"cannot ask the broker {self.access.url}: a proxy in the environment cannot be used"
            raise BrokerSilent(what, "set https_proxy and all_proxy to http://HOST:PORT, or unset them") from None

    def _peer(self, answer: "httpx.Response") -> str | None:
        from urllib.request import getproxies, proxy_bypass

        parts = urlsplit(self.access.url)
        proxies = {} if self._near or proxy_bypass(parts.hostname or "") else getproxies()
        if proxies.get(parts.scheme) or proxies.get("all"):
            return None
        return str(answer.extensions["network_stream"].get_extra_info("server_addr")[0])

    async def _read(self, answer: "httpx.Response", largest: int) -> str:
        text = bytearray()
        async for piece in answer.aiter_raw():
            text += piece
            if len(text) > largest:
                raise self.nonsense(ValueError(f"it is longer than {largest} bytes"))
        return text.decode(errors="replace")

    async def _lines(self, answer: "httpx.Response") -> AsyncGenerator[str, None]:
        rest = b""
        async with aclosing(cast("AsyncGenerator[bytes, None]", answer.aiter_raw())) as pieces:
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield line.decode(errors="replace").removesuffix("\r")
                if len(rest) > LONGEST:
                    raise self.nonsense(ValueError("an event does not end"))

    @property
    def _token_remedy(self) -> str:
        """Return where this user's token for the broker is expected."""
        path, key = token_place(self.access.url)
        return (
            f"name the broker in COGET_BROKER ({self.access.url}) and its token in COGET_BROKER_TOKEN, or write the "
            f'line "{key}" = "TOKEN" into {path}'
        )

    def _event(self, fields: Mapping[str, str]) -> ServerEvent:
        try:
            return ServerEvent(fields.get("event", "message"), fields.get("id", ""), document(fields["data"]))
        except NONSENSE as error:
            raise self.nonsense(error) from None

    def _refuse(self, answer: "httpx.Response", text: str) -> None:
        if answer.is_success:
            return
        if answer.is_redirect:
            raise UsageError(
                f"{self.access.url} redirects to {answer.headers.get('location')}", "use that address instead"
            )
        try:
            said = document(text)
            error = self.refused(said["error"], BrokerConflict if answer.status_code in (404, 409) else BrokerRefuses)
            error.answer = said
        except NONSENSE:
            raise self.nonsense(ValueError(f"{answer.status_code} {answer.reason_phrase}")) from None
        if answer.status_code == 401 and not self.access.token:
            raise NotAllowed(error.message, self._token_remedy)
        if answer.status_code in (401, 403):
            raise NotAllowed(error.message, error.remedy)
        if answer.status_code in (400, 404, 409, 413, 422):
            raise error
        raise BrokerSilent(error.message, error.remedy or "try again later")

    def refused(self, error: Mapping[str, Any], kind: type[BrokerRefuses] = BrokerRefuses) -> BrokerRefuses:
        """Return the exception for a broker's own error message."""
        return kind(f"{self.access.url}: {error['message']}", str(error["remedy"]))

    def nonsense(self, error: Exception) -> NothingToFetchFrom:
        """Return the exception for a malformed answer."""
        reason = f"{type(error).__name__}: {error}"[:200]
        remedy = self._remedy.replace("try again", "check the broker's address")
        return NothingToFetchFrom(f"{self.access.url} does not answer like a broker ({reason})", remedy)
