"""The HTTP engine against nginx in many configurations, and against answers that no nginx would give."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import ExitStack, asynccontextmanager

import pytest

from coalloc.engine.http import HTTPSource
from coalloc.engine.span import Span
from coalloc.errors import (
    ConnectionLost,
    NoSuchFile,
    NotThatProtocol,
    PermissionRefused,
    ReplicaChanged,
    ServerBusy,
    SourceError,
    Stalled,
    Unreachable,
    Unsupported,
)
from tests.support.fetching import CountingDialer, collect, opened, options, random_file
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

SIZE = 3_000_001


@pytest.fixture
def start_nginx(tmp_path):
    """A function that starts nginx (keywords as of Nginx) on `tmp_path / "export"`; it ends with the test."""
    with ExitStack() as stack:
        started = []

        def start(**keywords):
            started.append(stack.enter_context(Nginx(tmp_path / "export", tmp_path / f"run{len(started)}", **keywords)))
            return started[-1]

        yield start


@pytest.fixture
def content(tmp_path):
    (tmp_path / "export").mkdir(exist_ok=True)
    return random_file(tmp_path / "export" / "file", SIZE)


def source_of(server, path="file", **changes):
    return HTTPSource(server.url(path), options(**changes))


async def failure(source):
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    return caught.value


async def test_digest_header_gives_a_checksum_of_the_whole_file(start_nginx, content):
    server = start_nginx(more='add_header Digest "ADLER32=03da0195";')
    async with opened(source_of(server)) as source:
        (checksum,) = (await source.open()).checksums
        assert (checksum.algorithm, checksum.value) == ("adler32", "03da0195")
        assert await source.checksum("adler32", 0, SIZE) == "03da0195"
        assert await source.checksum("adler32", 0, SIZE - 1) is None
        assert await source.checksum("md5", 0, SIZE) is None


@pytest.mark.parametrize(
    "habit",
    [
        "if ($request_method = HEAD) { return 405; }",
        "if ($request_method = HEAD) { return 403; }",
        "etag off;",
        "location / { return 302 /real$uri; } location /real/ { alias %s/; }",
    ],
)
async def test_habits_that_do_no_harm(start_nginx, content, tmp_path, habit):
    server = start_nginx(more=habit.replace("%s", str(tmp_path / "export")))
    async with opened(source_of(server)) as source:
        stat = await source.open()
        assert (stat.size, stat.ranged) == (SIZE, True)
        assert stat.validator
        assert await collect(source, 7, SIZE) == content[7:]


async def test_a_redirect_without_end(start_nginx, content):
    server = start_nginx(more="location / { return 302 /again; }")
    assert type(await failure(source_of(server))) is Unsupported


def moved(status, server):
    return f"HTTP/1.1 {status} Moved\nLocation: {server.url('file')}\nContent-Length: 0\n\n"


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_followed_once(start_nginx, content, status):
    answer = moved(status, start_nginx())
    async with saying(answer, answer) as url, opened(HTTPSource(url, options())) as source:  # to HEAD and to GET
        for start in range(0, 50, 10):
            assert await collect(source, start, start + 10) == content[start : start + 10]


@pytest.mark.parametrize("absolute", [True, False])
async def test_a_redirect_within_a_server_keeps_the_login(start_nginx, content, tmp_path, absolute):
    (tmp_path / "users").write_text("me:{PLAIN}secret\n")
    place = "http://$http_host/real" if absolute else "/real"
    server = start_nginx(
        more=f"""
        absolute_redirect off;
        location / {{ if (-f {tmp_path}/asked) {{ return 410; }} return 302 {place}$uri; }}
        location /real/ {{ alias {tmp_path}/export/;
            auth_basic files; auth_basic_user_file {tmp_path}/users; }}"""
    )
    async with opened(HTTPSource(server.url("file").replace("://", "://me:secret@"), options())) as source:
        assert await collect(source, 0, 10) == content[:10]
        (tmp_path / "asked").touch()
        assert await collect(source, 10, 20) == content[10:20]


@pytest.mark.parametrize("gone", ["down", "forbidden"])
async def test_redirect_is_followed_anew_when_its_target_is_gone(start_nginx, content, tmp_path, gone):
    first, second = start_nginx(more=f"if (-f {tmp_path}/forbidden) {{ return 403; }}"), start_nginx()
    answers = moved(302, first), moved(302, first), moved(302, second)
    async with saying(*answers) as url, opened(HTTPSource(url, options())) as source:
        assert await collect(source, 0, 10) == content[:10]
        if gone == "down":
            first.kill()
        else:
            (tmp_path / "forbidden").touch()
        for start in range(10, 50, 10):
            assert await collect(source, start, start + 10) == content[start : start + 10]


async def test_a_server_that_ignores_ranges(start_nginx, content):
    server = start_nginx(more="max_ranges 0;")
    async with opened(source_of(server)) as source:
        stat = await source.open()
        assert (stat.size, stat.ranged) == (SIZE, False)
        assert await collect(source, 0, SIZE) == content
        assert await collect(source, 0, 1000) == content[:1000]
        with pytest.raises(Unsupported):
            await collect(source, 5, 1000)


@pytest.mark.parametrize("habit", ["", "etag off;"])
async def test_a_file_that_changed_is_not_mixed_in(start_nginx, content, tmp_path, habit):
    async with opened(source_of(start_nginx(more=habit))) as source:
        random_file(tmp_path / "export" / "file", SIZE, seed=2)
        os.utime(tmp_path / "export" / "file", (1, 1))
        with pytest.raises(ReplicaChanged):
            await collect(source, 0, 1000)


async def test_the_connection_is_kept_between_ranges(start_nginx, content):
    dialer = CountingDialer()
    async with opened(source_of(start_nginx(), dialer=dialer)) as source:
        for start in range(0, SIZE, 500_000):
            await collect(source, start, min(start + 500_000, SIZE))
        assert len(dialer.dialled) == 1
        await source.fetch(span := Span(0, SIZE), lambda start, end, data: shorten(span))
        await collect(source, 0, 10)
        assert len(dialer.dialled) == 2


def shorten(span):
    span.end = min(span.end, 5)


async def test_an_idle_connection_that_the_server_closed_is_made_again(start_nginx, content):
    server = start_nginx(more="keepalive_requests 2;")
    async with opened(source_of(server)) as source:
        for start in range(10):
            assert await collect(source, start, start + 1) == content[start : start + 1]


async def test_user_and_password(start_nginx, content, tmp_path):
    (tmp_path / "users").write_text("me:{PLAIN}sec ret\n")
    server = start_nginx(more=f"auth_basic files; auth_basic_user_file {tmp_path / 'users'};")
    url = server.url("file")
    async with opened(HTTPSource(url.replace("://", "://me:sec%20ret@"), options())) as source:
        assert await collect(source, 0, 10) == content[:10]
    error = await failure(HTTPSource(url.replace("://", "://me:wrong@"), options()))
    assert type(error) is PermissionRefused
    assert "wrong" not in error.message
    assert type(await failure(HTTPSource(url, options()))) is PermissionRefused


async def test_a_busy_server(start_nginx, content):
    server = start_nginx(more="location / { add_header Retry-After 120 always; return 503; }")
    error = await failure(source_of(server))
    assert type(error) is ServerBusy
    assert error.retry_after == 120
    assert not error.permanent


async def test_a_file_that_vanished(start_nginx, content, tmp_path):
    async with opened(source_of(start_nginx())) as source:
        (tmp_path / "export" / "file").unlink()
        with pytest.raises(NoSuchFile):
            await collect(source, 0, 10)


@pytest.mark.parametrize("slash", ["", "/"])
async def test_the_page_of_a_directory_is_not_a_file(start_nginx, tmp_path, slash):
    (tmp_path / "export/folder").mkdir(parents=True)
    error = await failure(source_of(start_nginx(more="autoindex on;"), f"folder{slash}"))
    assert isinstance(error, Unsupported)
    assert error.remedy == "if it is a directory, fetch it by coget get -r"


async def test_tls_is_verified(start_nginx, content, grid, monkeypatch):
    server = start_nginx(certificate=(grid.localhost.certificate, grid.localhost.key))
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    error = await failure(source_of(server))
    assert type(error) is PermissionRefused
    assert "SSL_CERT_FILE" in error.remedy
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    async with opened(source_of(server)) as source:
        assert await collect(source, 0, 10) == content[:10]
    other = HTTPSource(server.url("file").replace("127.0.0.1", "127.0.0.2"), options())
    assert type(await failure(other)) in (PermissionRefused, Unreachable)


async def test_servers_of_other_protocols_are_reported_as_such(start_nginx, content):
    plain = start_nginx()
    error = await failure(HTTPSource(plain.url("file", "https"), options()))
    assert type(error) is NotThatProtocol
    async with saying("SSH-2.0-other\n\n") as url:
        error = await failure(HTTPSource(url, options()))
    assert type(error) is NotThatProtocol
    assert url in error.message


async def test_a_server_that_does_not_answer():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        assert type(await failure(HTTPSource(url, options(connect_seconds=0.5)))) is Stalled


async def test_a_proxy_from_the_environment(start_nginx, content, monkeypatch):
    server, dialer = start_nginx(), CountingDialer()
    proxy = start_nginx(more="location / { proxy_pass http://$http_host$request_uri; proxy_force_ranges on; }")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
    async with opened(source_of(server, dialer=dialer)) as source:
        assert await collect(source, 5, 1000) == content[5:1000]
    assert {port for _, port in dialer.dialled} == {proxy.port}
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    dialer.dialled.clear()
    async with opened(source_of(server, dialer=dialer)):
        assert {port for _, port in dialer.dialled} == {server.port}


UNUSABLE = {
    "socks5h": ("all_proxy", "socks5h://ann:secretpw@127.0.0.1:1"),
    "socks4": ("all_proxy", "socks4://ann:secretpw@127.0.0.1:1"),
    "not encoded": ("https_proxy", "http://ann:secretpw/x@proxy.invalid"),
    "no port": ("http_proxy", "http://ann:secretpw@127.0.0.1:65537"),
    "no host": ("http_proxy", "http://"),
}


@pytest.mark.parametrize("which", UNUSABLE)
async def test_a_proxy_that_cannot_be_used_is_named_without_its_value(monkeypatch, which):
    variable, value = UNUSABLE[which]
    monkeypatch.setenv(variable, value)
    error = await failure(HTTPSource(f"http{'s' * (variable == 'https_proxy')}://127.0.0.1:1/x", options()))
    assert type(error) is Unsupported
    assert f"the proxy in {variable} cannot be used" in error.message
    assert "secretpw" not in error.message + error.remedy


@asynccontextmanager
async def saying(*answers):
    """The URL of a server that gives the next of these answers on each connection, then hangs up."""
    left = list(answers)

    async def answer(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(left.pop(0).replace("\n", "\r\n").encode())
        await writer.drain()

    async with raw_server(answer) as port:
        yield f"http://127.0.0.1:{port}/file"


STAT = 'HTTP/1.1 200 OK\nContent-Length: 100\nAccept-Ranges: bytes\nETag: "1"\n\n'
PART = 'HTTP/1.1 206 OK\nContent-Length: 10\nContent-Range: bytes 0-9/100\nETag: "1"\n\n'


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (f"{PART}01234", ConnectionLost),
        ("", ConnectionLost),
        (f"{PART}0123456789".replace("0-9/", "1-10/"), Unsupported),
        (f"{PART}0123456789".replace("Content-Range", "X"), Unsupported),
        (f"{PART}0123456789".replace("/100", "/101"), ReplicaChanged),
        (f"{PART}0123456789".replace('"1"', '"2"'), ReplicaChanged),
        (f"{PART}0123456789".replace("ETag", "Content-Encoding: gzip\nETag"), Unsupported),
        (f"{STAT}{'0' * 100}", Unsupported),
        (f"{STAT}{'0' * 100}".replace('"1"', '"2"'), ReplicaChanged),
        ("HTTP/1.1 416 No\nContent-Length: 0\n\n", Unsupported),
        ("HTTP/1.1 416 No\nContent-Range: bytes */50\nContent-Length: 0\n\n", ReplicaChanged),
    ],
)
async def test_answers_that_are_not_what_was_asked(answer, kind):
    async with saying(STAT, answer) as url, opened(HTTPSource(url, options())) as source:
        with pytest.raises(kind) as caught:
            await collect(source, 0, 10)
    assert type(caught.value) is kind
    assert url in caught.value.message


async def test_an_answer_that_is_right():
    async with saying(STAT, f"{PART}0123456789") as url, opened(HTTPSource(url, options())) as source:
        assert await collect(source, 0, 10) == b"0123456789"


@pytest.mark.parametrize(
    ("version", "shows"),
    [
        ('ETag: "1"', True),
        ("Last-Modified: Thu, 26 Nov 2026 00:00:00 GMT", True),
        ('ETag: W/"1"', False),  # versions may share it
        ("X: nothing", False),
    ],
)
async def test_only_strong_validators_show_that_the_file_is_unchanged(version, shows):
    stat, part = (text.replace('ETag: "1"', version) for text in (STAT, PART))
    async with saying(stat, f"{part}0123456789") as url, opened(HTTPSource(url, options())) as source:
        before = asyncio.get_running_loop().time()
        await collect(source, 0, 10)
        assert (source.unchanged_at >= before) == shows


async def test_answer_without_a_size_is_unsupported():
    unsized = "HTTP/1.1 200 OK\nConnection: close\n\nabc"
    async with saying(unsized, unsized) as url:
        error = await failure(HTTPSource(url, options()))
    assert type(error) is Unsupported
    assert "size" in error.message


def test_the_command_line_of_httpx_is_not_loaded():
    """The module imports others that no transfer needs, which takes as long as a far server's answer."""
    program = "import sys, coalloc.engine.http, coalloc.engine.http.transport; sys.exit('pygments' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=PATIENCE)
