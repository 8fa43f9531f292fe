"""Requests over plain TCP: they send and accept the same as httpx."""

import asyncio
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.http import HTTPSource, plain
from coalloc.engine.http.messages import head_end, read_head
from coalloc.engine.http.transport import client
from coalloc.errors import SourceError
from coalloc.util.dialer import DirectDialer
from tests.support.coget import coget
from tests.support.fetching import CountingDialer, collect, opened, options, random_file
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

STAT = 'HTTP/1.1 200 OK\nContent-Length: 10\nAccept-Ranges: bytes\nETag: "1"\n\n'
PART = 'HTTP/1.1 206 Part\nContent-Length: 10\nContent-Range: bytes 0-9/10\nETag: "1"\n\n0123456789'
ONE = 'HTTP/1.1 206 Part\nContent-Length: 1\nContent-Range: bytes 0-0/10\nETag: "1"\n\n0'
REFUSED = "HTTP/1.1 405 No\nContent-Length: 0\n\n"
LONG = "".join(f"X-{number}: {'y' * 1000}\n" for number in range(70))
MORE = {
    "hints": f"HTTP/1.1 100 Continue\n\nHTTP/1.1 103 Early Hints\nLink: </x>\n\n{STAT}",
    "switch": f"HTTP/1.1 101 Switching Protocols\nUpgrade: x\nConnection: upgrade\n\n{STAT}",
    "older": STAT.replace("HTTP/1.1", "HTTP/1.0"),
    "other version": STAT.replace("HTTP/1.1", "HTTP/3.0"),
    "closing": STAT.replace("ETag", "Connection: close\nETag"),
    "long": STAT.replace("ETag", f"{LONG}ETag"),
    "folded": STAT.replace("ETag", "X: a\n b\nETag"),
    "twice": STAT.replace("ETag", "Content-Length: 10\nETag"),
    "contradiction": STAT.replace("ETag", "Content-Length: 11\nETag"),
    "negative": STAT.replace("10", "-1"),
    "chunked": STAT.replace("ETag", "Transfer-Encoding: chunked\nETag"),
    "encoded": STAT.replace("ETag", "Content-Encoding: gzip\nETag"),
    "cookie": STAT.replace("ETag", "Set-Cookie: a=b\nETag"),
    "no reason": STAT.replace(" OK", ""),
    "blank in a name": STAT.replace("ETag:", "ETag :"),
    "no colon": STAT.replace("ETag", "hello\nETag"),
    "control character": STAT.replace('"1"', '"\x011"'),
    "NUL": STAT.replace('"1"', '"\x001"'),
    "body after HEAD": f"{STAT}0123456789",
    "not found": "HTTP/1.1 404 not \xe9 here\nContent-Length: 0\n\n",
    "busy": "HTTP/1.1 503 Later\nRetry-After: 7\nContent-Length: 0\n\n",
    "hang up": "",
    "half": "HTTP/1.1 200 OK\nContent-Le",
    "other protocol": "220 ftp.example ready\n",
    "redirect to nothing": "HTTP/1.1 302 Moved\nLocation: http:///x\n\n",
    "redirect of chunks": "HTTP/1.1 302 Moved\nLocation: /there\nTransfer-Encoding: chunked\n\n",
}
"""Answers to the first request by their name."""


@asynccontextmanager
async def answering(begin, newline):
    """The URL of a server that answers HEAD with `begin`, and serves ranges of ten bytes."""

    async def serve(reader, writer):
        while (request := (await reader.readuntil(b"\r\n\r\n")).decode()).split()[0]:
            if request.startswith("HEAD"):
                reply = begin if request.split()[1] == "/file" else STAT
            else:
                reply = ONE if "bytes=0-0" in request else PART
            writer.write(reply.replace("\n", newline).encode("latin-1"))
            if reply != PART:
                await writer.drain()
            if not reply.endswith("\n\n") or "close" in reply:
                return

    async with raw_server(serve) as port:
        yield f"http://127.0.0.1:{port}/file"


async def outcome(url):
    """Return the size, version and ten bytes that a session gets from a server, or the error."""
    source = HTTPSource(url, options(connect_seconds=PATIENCE))
    try:
        stat = await source.open()
        return stat._replace(rtt=None), await collect(source, 0, 10)
    except SourceError as error:
        return type(error), error.remedy, error.permanent
    finally:
        await source.close()


@pytest.mark.parametrize("newline", ["\r\n", "\n"], ids=["CRLF", "LF"])
@pytest.mark.parametrize("begin", [pytest.param(answer, id=name) for name, answer in MORE.items()])
async def test_an_answer_means_the_same_as_to_httpx(begin, newline, monkeypatch):
    async with answering(begin, newline) as url:
        found = await outcome(url)
        monkeypatch.setattr(plain, "_names_proxy", lambda: True)
        assert found == await outcome(url)


WORDS = st.text("abcXYZ019._~!$&'()*+,;=:@/-%? #\\\"[]\xe9", max_size=20)
HOSTS = st.sampled_from(
    ["127.0.0.1", "Example.org", "a-b.c", "xn--bcher-kva.example", "127.0.0.01", "::1", "a_b", "a."]
)
LOGINS = st.sampled_from(["", "me@", "me:secret@", "me:sec%20ret@", ":@", "m%C3%A9:@", "a:b:c@"])
PORTS = st.sampled_from(["", ":80", ":8080", ":", ":65536"])


@given(LOGINS, HOSTS, PORTS, WORDS)
def test_a_request_is_the_one_that_httpx_sends(login, host, port, path):
    url = f"http://{login}{host}{port}/{path}"
    server = plain.plain_server(url, DirectDialer(), 1.0, lambda _: None)
    if server is None:
        return
    usual = client(url, DirectDialer(), 1.0, lambda _: None)
    request = usual.build_request("GET", url, headers={"Range": "bytes=0-0"})
    user, password = request.url.username, request.url.password
    if user or password:
        request = next(httpx.BasicAuth(user, password).auth_flow(request))
    mine = server.request("GET", {"Range": "bytes=0-0"})
    assert (mine.target, mine.headers) == (request.url.raw_path, tuple(request.headers.raw))
    assert (server.host, server.port) == (request.url.raw_host.decode(), request.url.port or 80)


@pytest.mark.parametrize("url", ["http://127.0.0.1/x", "http://a.example:8080/a%20b?c=d", "http://me:secret@a.example"])
def test_usual_urls_are_plain(url, monkeypatch):
    assert plain.plain_server(url, DirectDialer(), 1.0, lambda _: None)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example")
    assert plain.plain_server(url, DirectDialer(), 1.0, lambda _: None) is None


async def test_the_connection_is_used_again_after_a_redirect_and_a_cookie():
    asked = []

    async def serve(reader, writer):
        while request := (await reader.readuntil(b"\r\n\r\n")).decode():
            asked.append(request)
            if "/file" in request.splitlines()[0]:
                reply = "HTTP/1.1 302 Moved\nLocation: /there\nSet-Cookie: a=b\nContent-Length: 0\n\n"
            else:
                reply = STAT if request.startswith("HEAD") else ONE if "=0-0" in request else PART
            writer.write(reply.replace("\n", "\r\n").encode())

    dialer = CountingDialer()
    async with raw_server(serve) as port:
        url = f"http://127.0.0.1:{port}/file"
        async with opened(HTTPSource(url, options(dialer=dialer))) as source:
            assert await collect(source, 0, 10) == b"0123456789"
    assert len(dialer.dialled) == 1
    assert ["Cookie: a=b" in request for request in asked] == [False, *[True] * (len(asked) - 1)]


async def test_an_answer_that_comes_byte_by_byte():
    async def serve(reader, writer):
        while (request := await reader.readuntil(b"\r\n\r\n")).split():
            for byte in (STAT if request.startswith(b"HEAD") else PART).replace("\n", "\r\n").encode():
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)

    async with raw_server(serve) as port, opened(HTTPSource(f"http://127.0.0.1:{port}/x", options())) as source:
        assert await collect(source, 0, 10) == b"0123456789"


@given(st.binary(max_size=40), st.integers(0, 60))
def test_the_end_of_a_head_is_found_however_it_arrives(rest, cut):
    head = b"HTTP/1.1 200 OK\r\nA: b\r\n\r\n"
    begun = bytearray((head + rest)[:cut])
    found = head_end(begun)
    if found is None:
        assert cut < len(head)
        known = len(begun)
        begun += (head + rest)[cut:]
        found = head_end(begun, known)
    assert found == len(head)
    assert read_head(bytes(begun[:found])).status == 200


@pytest.mark.parametrize(
    ("more", "requests", "connections"),
    [
        ("", ["HEAD 200", "GET 206"], 1),
        ("if ($request_method = HEAD) { return 405; }", ["HEAD 405", "GET 206", "GET 206"], 1),
        ("keepalive_timeout 0;", ["HEAD 200", "HEAD 200", "GET 206"], 3),
    ],
    ids=["usual", "no HEAD", "closing"],
)
def test_a_download_asks_for_the_size_once(more, requests, connections, tmp_path):
    """The answer also shows that the URL is not a Metalink."""
    seen = 'log_format seen "$connection $request_method $status";'
    logged = f"access_log {tmp_path}/log seen; {more}"
    with Nginx(tmp_path / "export", tmp_path / "nginx", zones=seen, more=logged) as server:
        content = random_file(server.root / "file", 100_000)
        done = coget(["--quiet", server.url("file"), "-o", str(tmp_path / "here")], tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "here").read_bytes() == content
    asked = [line.partition(" ") for line in (tmp_path / "log").read_text().splitlines()]
    assert [request for _, _, request in asked] == requests
    assert len({connection for connection, _, _ in asked}) == connections
