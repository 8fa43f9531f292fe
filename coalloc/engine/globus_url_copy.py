"""globus-url-copy as an engine, for servers whose security or scheme coget's own client does not support.

For each range, a process of the tool writes into a pipe, and the bytes are counted. Neither its exit status nor an
empty error output is trusted (it exits with 0 after a range beyond the end of the file). The tool has no command for
the size; `-sync` with `-do` ("dump only"), which writes size and modification time of the files to copy, is used
instead. It has no command for checksums.

It delegates to every gsiftp:// server. So it gets a proxy that is valid for an hour; unless the user has allowed
delegation to the host, proxies derived from this one are invalid.

It makes its connections by itself. If the address policy restricts addresses, the host is looked up first, and all its
addresses must be allowed. For ftp://, the tool then gets an IPv4 address, if there is one; for gsiftp://, it needs the
name to check the server's certificate. It follows a server's PASV reply to any address.
"""

import asyncio
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote, unquote, urlsplit

from coalloc.engine.base import EngineOptions, Source
from coalloc.engine.limits.within_process import processes
from coalloc.engine.span import Deliver, Span
from coalloc.errors import (
    ConnectionLost,
    NoFreeProcess,
    NoSuchFile,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    SourceError,
    Stalled,
    UnknownHost,
    Unreachable,
    Unsupported,
    UsageError,
)
from coalloc.model.replicas import Stat
from coalloc.safe_text import hide, redact, redacted_text, unsafe_reason
from coalloc.util import trace
from coalloc.util.addresses import USUAL_PORTS
from coalloc.util.counts import count
from coalloc.util.dialer import checked

__all__ = ["TOOL", "URLCopySource", "meaning"]

Result = TypeVar("Result")

TOOL = "globus-url-copy"
CHUNK = 1024 * 1024
MOST_WORDS = 64 * 1024
"""Maximum bytes kept of the tool's output, which servers can make arbitrarily long."""
PROXY_SECONDS = 600.0
"""Seconds for which a proxy made for the tool is reused."""
SAFE = "/:@%~!$&'()+,;="
"""Characters that need no percent-encoding for the tool; `*`, `?` and `[` would be patterns."""

MEANINGS: Sequence[tuple[str, type[SourceError], str]] = [
    (r"service busy|too many|limit exceeded", ServerBusy, "try again later"),
    (r"no such file|PATH_NOT_FOUND|is a directory|not a (plain|regular) file", NoSuchFile, "check the path in the URL"),
    (r"name or service not known|no address associated", UnknownHost, "check the spelling of the host in the URL"),
    (
        r"temporary failure in name resol",
        Unreachable,
        "check the name service; set GLOBUS_HOSTNAME where there is none",
    ),
    (r"unable to connect|connection refused|no route|unreachable", Unreachable, "check host and port in the URL"),
    (r"permission denied|login incorrect|access denied|\b530\b", PermissionRefused, "ask the admin for access"),
    (
        r"\b534\b|\bDCAU\b|data channel auth",
        PermissionRefused,
        "if you trust the host, allow it a proxy: --delegate HOST",
    ),
    (r"credential|certificate|\bGSS\b|gssapi", PermissionRefused, "check your proxy with grid-proxy-info"),
    (r"end.of.file|connection reset|broken pipe|closed", ConnectionLost, "try again"),
    (
        r"parsing url|url_parse|not supported|unsupported|not implemented|\b50[024]\b",
        Unsupported,
        "use another replica",
    ),
]
"""Meanings of the tool's output: pattern, error, remedy. The first match counts."""


class URLCopySource(Source):
    """A file that globus-url-copy fetches.

    :raises UsageError: when the URL cannot be passed to the tool
    """

    def __init__(self, url: str, options: EngineOptions) -> None:
        super().__init__(url, options)
        self._shown = redact(url)
        self._tool_url = _url_for_tool(url, self._shown)
        self._place: asyncio.Semaphore | None = None
        self._host = urlsplit(self._tool_url).hostname or ""
        self._proxy: tuple[float, bytes] | None = None

    async def open(self) -> Stat:
        """Read the size and the version, as every engine does.

        :raises NoFreeProcess: when coget already runs the maximum number of external programs
        """
        _refuse_unsupported_name(self._tool_url, self._shown)
        await self._allowed()
        await self._take_place()
        seconds = 2 * self.options.connect_seconds  # the tool needs some twenty round trips
        try:
            async with asyncio.timeout(seconds):
                return await self._stat()
        except TimeoutError:
            await self.close()
            raise Stalled(f"{self._shown} did not answer within {seconds:g} s", "try again later") from None
        except BaseException:
            await self.close()
            raise

    async def _take_place(self) -> None:
        if self._place is None:
            if processes.here().locked():
                raise NoFreeProcess(TOOL, processes.most, self._wait_for_place)
            await self._wait_for_place()

    async def _wait_for_place(self) -> None:
        if self._place is None:
            places = processes.here()
            await places.acquire()
            self._place = places

    async def _allowed(self) -> str:
        """Return the URL for the tool.

        :raises PermissionRefused: when the address policy refuses its host
        """
        policy, parts = self.options.dialer.policy, urlsplit(self._tool_url)
        if policy.anywhere:
            return self._tool_url
        host = parts.hostname or ""
        address = await checked(host, parts.port or USUAL_PORTS.get(parts.scheme, 0), policy)
        if parts.scheme != "ftp" or ":" in address:
            return self._tool_url
        user, at, _ = parts.netloc.rpartition("@")
        port = f":{parts.port}" if parts.port else ""
        return self._tool_url.replace(parts.netloc, f"{user}{at}{address}{port}", 1)

    async def _stat(self) -> Stat:
        with tempfile.TemporaryDirectory(prefix="coget-") as folder:
            found = Path(folder, "found")
            async with self._running(
                "-sync", "-sync-level", "0", "-do", str(found), to=f"file://{folder}/none"
            ) as tool:
                words = await self._words(tool)
            facts = _facts(found)
        if (size := count(facts.get("size", ""))) is not None:
            return Stat(size, facts.get("modify"))
        if facts:
            raise NoSuchFile(f"{self._shown} is not a plain file", "check the path in the URL")
        raise meaning(words, self._shown, self._hidden)

    async def fetch(self, span: Span, deliver: Deliver) -> None:
        if span.start >= span.end:
            return
        await self._take_place()
        at, requested_end = span.start, span.end
        async with self._running("-off", str(at), "-len", str(requested_end - at), to="-") as tool:
            assert tool.stdout is not None
            while at < span.end:
                chunk = await tool.stdout.read(CHUNK)
                if not chunk:
                    raise self._ended_short(await self._words(tool), at, span)
                start, at = at, min(at + len(chunk), max(at, span.end))
                if start < at:
                    deliver(start, at, memoryview(chunk)[: at - start])
                await asyncio.sleep(0)  # reading buffered data never pauses: give other tasks and cancellation a turn

    async def checksum(self, algorithm: str, start: int, end: int) -> str | None:
        return None

    async def recheck(self) -> Stat:
        return await self.open()

    async def close(self) -> None:
        if self._place:
            self._place.release()
            self._place = None

    @asynccontextmanager
    async def _running(self, *options: str, to: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run the tool, and end it on exit. URLs go to its standard input, since other users can read command lines."""
        program = shutil.which(TOOL)
        if program is None:
            raise Unsupported(
                f"{self._shown} needs {TOOL}, which is not installed", "run: apt-get install globus-gass-copy-progs"
            )
        url = await self._allowed()
        trace.asked(self._shown, " ".join([TOOL, *options]))
        with tempfile.NamedTemporaryFile(prefix="coget-") as proxy:
            grid = self._tool_url.startswith("gsiftp:")
            if grid:
                proxy.write(self._short_proxy())
                proxy.flush()
            async with self._started(program, *options, proxy=proxy.name if grid else None) as tool:
                assert tool.stdin is not None
                tool.stdin.write(f'"{url}" {to}\n'.encode())
                tool.stdin.close()
                yield tool

    def _short_proxy(self) -> bytes:
        """Return a short-lived proxy for the tool, used for several ranges."""
        from coalloc.engine.gridftp.gsi.credential import find_credential
        from coalloc.engine.gridftp.gsi.delegation import short_proxy
        from coalloc.engine.gridftp.gsi.security import warn_once

        if self._proxy is None or time.monotonic() > self._proxy[0] + PROXY_SECONDS:
            delegates = self.options.delegates_to(self._host)
            self._proxy = time.monotonic(), short_proxy(find_credential(), delegates)
            if delegates:
                warn_once(f"{self._host}: {TOOL} delegates a limited proxy to it, valid for an hour at most")
        return self._proxy[1]

    @asynccontextmanager
    async def _started(
        self, program: str, *options: str, proxy: str | None
    ) -> AsyncIterator[asyncio.subprocess.Process]:
        """Start the tool as a process, with this proxy file; kill it on exit."""
        environment = {**os.environ, "TZ": "UTC"}  # else it converts modification times to the local time zone
        if proxy:
            environment["X509_USER_PROXY"] = proxy
        unprotected = ["-nodcau"] if proxy and not self.options.delegates_to(self._host) else []
        starting = asyncio.create_task(
            asyncio.create_subprocess_exec(
                program,
                *options,
                *unprotected,
                *("-f", "-"),
                env=environment,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=CHUNK,
                start_new_session=True,  # so that Ctrl-C goes to coget only, which ends the tool
            )
        )
        try:
            yield await _whole(starting)  # asyncio would leave pipes open if cancelled half-way
        finally:
            if not starting.exception():
                await _end(starting.result())

    def _ended_short(self, words: str, at: int, span: Span) -> SourceError:
        if at == span.start and words:
            return meaning(words, self._shown, self._hidden)
        detail = f"; {TOOL} says {self._hidden(words)}" if words else ""
        return ConnectionLost(
            f"{self._shown}: the data ended at byte {at} of {span.start}-{span.end}{detail}", "try again"
        )

    async def _words(self, tool: asyncio.subprocess.Process) -> str:
        """Wait until the tool's error output ends; return it on one line, without the password of the URL."""
        assert tool.stderr is not None
        output = bytearray()
        while part := await tool.stderr.read(CHUNK):
            output += part
            del output[MOST_WORDS // 2 : -MOST_WORDS // 2]  # beginning and end are the most useful
        text = output.decode(errors="replace")
        return " ".join(text.replace(self._tool_url, self._shown).removeprefix("\nerror: ").split())

    def _hidden(self, words: str) -> str:
        return hide(words, self.url, self._tool_url)


async def _end(tool: asyncio.subprocess.Process) -> None:
    if tool.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(tool.pid, signal.SIGKILL)  # tool.kill() may reap it before the waiting task
    await _whole(asyncio.create_task(tool.wait()))


async def _whole(task: "asyncio.Task[Result]") -> Result:
    """Return the result of a short task. A cancellation of the caller, even a second one, waits for the task's end."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled:
        raise cancelled
    return task.result()


def _facts(dump: Path) -> dict[str, str]:
    """Read the facts of the one file in a dump: `"source" "destination" 0,-1 size=10;modify=1795257693;mode=0644;`."""
    if not dump.exists():
        return {}
    with dump.open(errors="replace") as file:
        facts = file.read(MOST_WORDS).rpartition('" ')[2]
    pairs = (fact.rpartition(" ")[2].partition("=") for fact in facts.split(";"))
    return {name: value for name, _, value in pairs if count(value) is not None}


def meaning(words: str, shown: str, hidden: Callable[[str], str] = redacted_text) -> SourceError:
    """Return the error for the tool's output.

    :param shown: the URL without secrets
    :param hidden: function that hides the secrets of the URL in the output
    """
    message = f"{shown}: {TOOL} says {hidden(words) or 'nothing'}"
    for pattern, error, remedy in MEANINGS:
        if re.search(pattern, words, re.I):
            return error(message, remedy)
    return ServerSays(message, "read the message, or use another replica")


def _url_for_tool(url: str, shown: str) -> str:
    """Return the URL for the tool, with all characters outside `SAFE` and unreserved ASCII percent-encoded.

    :raises UsageError: when the URL names no file at a host
    """
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    if not urlsplit(f"//{authority}").hostname or not path:
        raise UsageError(f"{shown} does not name a file on a server", f"write {scheme}://HOST/PATH")
    if why := unsafe_reason(url):
        raise UsageError(f"cannot pass {shown} to {TOOL}: {why}", "correct the URL")
    return f"{scheme.lower()}://{authority}{slash}{quote(path, safe=SAFE)}"


def _refuse_unsupported_name(url: str, shown: str) -> None:
    """Refuse a name that the tool would send to the server in another form.

    :raises Unsupported: for control characters, and, over ftp://, for characters outside ASCII
    """
    name = unquote(url, errors="surrogateescape")
    if re.search(r"[\x00-\x1f\x7f]", name):
        raise Unsupported(f"{shown}: {TOOL} does not support control characters in names", "use --engine gridftp")
    if url.startswith("ftp:") and not name.isascii():
        raise Unsupported(f"{shown}: {TOOL} supports only ASCII names over ftp://", "use gsiftp:// or --engine gridftp")
