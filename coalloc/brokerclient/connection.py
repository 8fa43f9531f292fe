"""Requests to a broker: answers that are whole, and streams of events."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from urllib.parse import urlsplit

from coalloc.brokerclient.documents import document
from coalloc.config import LOOPBACK, Access
from coalloc.errors import CoallocError, NotAllowed, NothingToFetchFrom, UsageError

if TYPE_CHECKING:
    import httpx

__all__ = ["NONSENSE", "BrokerRefuses", "BrokerSilent", "Connection", "ServerEvent"]

SECONDS = 10.0
"""For connecting, and between bytes."""
WHOLE = 60.0
"""Seconds for one answer."""
QUIET = 60.0
"""Seconds without a byte after which a stream is given up: a broker says every 15 s that it is there."""
LARGEST = 16 << 20
"""Bytes of one answer, where no more is asked for; what is made of it takes up to twenty times as much."""
LONGEST = 1 << 20
"""Bytes of one event."""
PATH = "/broker/v1"
NONSENSE = (ValueError, KeyError, TypeError, AttributeError, RecursionError, IndexError, OverflowError)
"""What comes of reading an answer that is not as it should be."""


class BrokerRefuses(CoallocError):
    """The broker says that what it was told makes no sense: telling it again is of no use."""

    status = 2
    code = "broker_refuses"


class BrokerSilent(NothingToFetchFrom):
    """The broker does not answer now, or says that it cannot; in a moment it may."""


class ServerEvent(NamedTuple):
    """A server-sent event: its name, its id, and its data, of JSON."""

    name: str
    id: str
    data: Any


class Connection:
    """One broker, as this user may use it.

    :param remedy: what to do when it does not answer
    """

    def __init__(self, access: Access, remedy: str) -> None:
        self.access = access
        self.address: str | None = None
        """The numeric address of the broker, once it has answered; None where a proxy asks it for us."""
        self._remedy = remedy

    @property
    def secure(self) -> bool:
        """Whether nobody on the way can change what it says."""
        return urlsplit(self.access.url).scheme == "https" or self._near

    @property
    def _near(self) -> bool:
        return urlsplit(self.access.url).hostname in LOOPBACK

    async def ask(self, method: str, path: str, seconds: float = WHOLE, largest: int = LARGEST, **what: Any) -> str:
        """The whole answer.

        :param seconds: how long that may take
        :param largest: bytes that it may have
        :param what: as httpx has it: `params`, `json`, `content`
        :raises BrokerSilent: :raises BrokerRefuses: :raises NotAllowed:
        """
        async with self._open(method, path, seconds, **what) as answer:
            text = await self._read(answer, largest)
        self._refuse(answer, text)
        return text

    async def events(self, path: str, seen: str = "") -> AsyncGenerator[ServerEvent, None]:
        """A stream of events; what is new since the one whose id was `seen`. Raises what `ask` does."""
        headers = {"Last-Event-ID": seen} if seen else {}
        async with self._open("GET", path, None, headers=headers) as answer:
            if not answer.is_success:
                self._refuse(answer, await self._read(answer, LARGEST))
            async with aclosing(self._lines(answer)) as lines:
                said: dict[str, str] = {}
                async for line in lines:
                    name, _, value = line.partition(":")
                    if name in ("event", "id", "data"):
                        said[name] = value.removeprefix(" ")  # a broker's data are one line
                    elif not line and "data" in said:
                        yield self._event(said)
                        said = {}

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, whole: float | None, **what: Any
    ) -> "AsyncGenerator[httpx.Response, None]":
        """The answer as it begins, of which all has to be there after `whole` seconds."""
        import httpx

        # An answer that is sent packed could fill the memory before it is counted.
        headers = {"Accept-Encoding": "identity"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        seconds = httpx.Timeout(SECONDS, read=SECONDS if whole else QUIET)
        try:
            # Redirects are not followed: they could lead the token elsewhere. No proxy is to see what goes in clear on
            # this machine.
            async with (
                asyncio.timeout(whole),
                httpx.AsyncClient(timeout=seconds, headers=headers, trust_env=not self._near) as client,
                client.stream(method, f"{self.access.url}{PATH}{path}", **what) as answer,
            ):
                self.address = self._peer(answer)
                yield answer
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ImportError) as error:  # the last: a proxy's library
            said = str(error) or type(error).__name__
            raise BrokerSilent(f"the broker {self.access.url} does not answer: {said}", self._remedy) from None

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

    def _event(self, said: Mapping[str, str]) -> ServerEvent:
        try:
            return ServerEvent(said.get("event", "message"), said.get("id", ""), document(said["data"]))
        except NONSENSE as error:
            raise self.nonsense(error) from None

    def _refuse(self, answer: "httpx.Response", text: str) -> None:
        if answer.is_success:
            return
        if answer.is_redirect:
            raise UsageError(f"{self.access.url} leads to {answer.headers.get('location')}", "name that one instead")
        try:
            error = self.refused(document(text)["error"])
        except NONSENSE:
            raise self.nonsense(ValueError(f"{answer.status_code} {answer.reason_phrase}")) from None
        if answer.status_code in (401, 403):
            raise NotAllowed(error.message, error.remedy)
        if answer.status_code in (400, 404, 409, 413, 422):
            raise error
        raise BrokerSilent(error.message, error.remedy or "try again later")

    def refused(self, error: Mapping[str, Any]) -> BrokerRefuses:
        """What the broker says of its own refusal."""
        return BrokerRefuses(f"{self.access.url}: {error['message']}", str(error["remedy"]))

    def nonsense(self, error: Exception) -> NothingToFetchFrom:
        """What it answered is nothing that a broker would."""
        said = f"{type(error).__name__}: {error}"[:200]
        remedy = self._remedy.replace("try again", "check its address")
        return NothingToFetchFrom(f"{self.access.url} does not answer as a broker does ({said})", remedy)
