"""Redirects: their targets, and the headers that follow; servers that steal, lie and never end."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from coalloc.engine.http import HTTPSource
from coalloc.errors import AddressRefused, PermissionRefused, SourceError, UnknownHost, Unsupported
from coalloc.resolve import http_documents
from coalloc.util.addresses import AddressClass, AddressPolicy, parse_networks
from coalloc.util.dialer import DirectDialer
from tests.coalloc.engine.http.test_http_source import content, start_nginx  # noqa: F401 - fixtures
from tests.support.fetching import collect, opened, options
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

STAT = 'HTTP/1.1 200 OK\nContent-Length: 100\nAccept-Ranges: bytes\nETag: "1"\n\n'
PART = 'HTTP/1.1 206 OK\nContent-Length: 10\nContent-Range: bytes 0-9/100\nETag: "1"\n\n0123456789'


class Heard(list):
    """The requests that a server received."""

    url = ""

    def headers(self, name):
        """Return this header of all requests; None where it is missing."""
        return [
            next((line.partition(": ")[2] for line in each.split("\r\n") if line.lower().startswith(f"{name}:")), None)
            for each in self
        ]


@asynccontextmanager
async def answering(answer, host="127.0.0.1"):
    """A server that answers requests by `answer` and hangs up; its received requests, with its URL."""
    heard = Heard()

    async def handle(reader, writer):
        heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
        reply = answer(heard[-1])
        if reply.startswith("HTTP/1.1 206") or not heard[-1].startswith("HEAD"):
            writer.write(reply.replace("\n", "\r\n").encode())
        else:
            writer.write((reply.partition("\n\n")[0] + "\n\n").replace("\n", "\r\n").encode())
        await writer.drain()

    async with raw_server(handle, host) as port:
        heard.url = f"http://{host}:{port}"
        yield heard


def leads_to(place, status=302, more=""):
    return lambda request: f"HTTP/1.1 {status} Moved\nLocation: {place}\n{more}Content-Length: 0\n\n"


def has_file(request):
    return STAT if request.startswith("HEAD") else PART


async def failure(url, **changes):
    source = HTTPSource(url, options(**changes))
    try:
        with pytest.raises(SourceError) as caught:
            await source.open()
    finally:
        await source.close()
    assert caught.value.remedy
    return caught.value


LINK_LOCAL = [
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/",
    "//169.254.169.254/x",
    "http://user:word@169.254.169.254:80/",
    "http://2852039166/",
    "http://0xa9fea9fe/",
    "http://169.254.43518/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::ffff:a9fe:a9fe]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[fe80::1]/",
    "http://[ff02::1]/",
    "http://[::]/",
    "http://0.0.0.0/",
    "http://224.0.0.1/",
    "http://255.255.255.255/",
]


@pytest.mark.parametrize("status", [301, 307])
@pytest.mark.parametrize("place", LINK_LOCAL)
async def test_no_redirect_leads_to_link_local_addresses(place, status):
    async with answering(leads_to(place, status)) as server:
        error = await failure(f"{server.url}/file")
    assert type(error) is AddressRefused
    assert len(server) == 1


@pytest.mark.parametrize(
    "place",
    ["ftp://127.0.0.1/x", "file:///etc/passwd", "gopher://x/", "http:///x", "http://[::1/", "http://127.0.0.1:0/"],
)
async def test_a_redirect_that_leads_nowhere(place):
    async with answering(leads_to(place)) as server:
        assert type(await failure(f"{server.url}/file")) is Unsupported


async def test_a_redirect_to_a_port_that_does_not_exist():
    """The system would connect to the port's lowest 16 bits."""
    async with answering(has_file) as other:
        host, _, port = other.url.rpartition(":")
        async with answering(leads_to(f"{host}:{int(port) + 65536}/file")) as server:
            assert type(await failure(f"{server.url}/file")) is Unsupported
    assert other == []


@pytest.mark.parametrize(
    "place",
    ["http://169.254.169.254./", "http://0251.0376.0251.0376/", "http://\N{FULLWIDTH DIGIT ONE}69.254.169.254/"],
)
async def test_redirect_to_a_disguised_address_is_not_followed(place):
    async with answering(leads_to(place)) as server:
        assert type(await failure(f"{server.url}/file")) in (UnknownHost, Unsupported, AddressRefused)
    assert len(server) == 1


PUBLIC = AddressPolicy(AddressClass.PUBLIC, parse_networks(["127.0.0.2"]))
"""Address policy for a replica that a public server named; 127.0.0.2 stands for public servers."""


async def test_a_public_server_leads_to_no_inner_one():
    async with (
        answering(has_file, "127.0.0.3") as inner,
        answering(leads_to(f"{inner.url}/secret"), "127.0.0.2") as outer,
        answering(leads_to(f"{outer.url}/on"), "127.0.0.2") as first,
    ):
        for url in (f"{outer.url}/x", f"{first.url}/x"):
            error = await failure(url, dialer=DirectDialer(PUBLIC))
            assert type(error) is AddressRefused
            assert "127.0.0.3" in error.message
    assert not inner
    assert outer


async def test_the_least_trusted_of_a_chain_counts(monkeypatch):
    """A local server redirects to a public one, which redirects back to this machine."""
    from coalloc.util import addresses

    public = (AddressClass.PUBLIC, parse_networks(["127.0.0.2"])[0])
    monkeypatch.setattr(addresses, "NETWORKS", (public, *addresses.NETWORKS))
    async with (
        answering(has_file, "127.0.0.3") as inner,
        answering(leads_to(f"{inner.url}/secret"), "127.0.0.2") as outer,
        answering(leads_to(f"{outer.url}/on"), "127.0.0.4") as first,
        answering(leads_to(f"{inner.url}/file"), "127.0.0.4") as straight,
    ):
        assert type(await failure(f"{first.url}/x")) is AddressRefused
        assert not inner
        listed = AddressPolicy(networks=parse_networks(["127.0.0.3/32"]))
        for url, policy in ((f"{straight.url}/x", AddressPolicy()), (f"{first.url}/x", listed)):
            async with opened(HTTPSource(url, options(dialer=DirectDialer(policy)))) as source:
                assert await collect(source, 0, 10) == b"0123456789"


async def test_a_login_and_cookies_stay_at_the_server_that_they_are_for():
    async with answering(has_file) as other:
        cookies = "Set-Cookie: id=secret\nSet-Cookie: all=secret; Domain=127.0.0.1; Path=/\n"
        async with answering(leads_to(f"{other.url}/file", more=cookies)) as server:
            url = server.url.replace("://", "://me:secret@")
            async with opened(HTTPSource(f"{url}/file", options())) as source:
                assert await collect(source, 0, 10) == b"0123456789"
                assert await collect(source, 0, 10) == b"0123456789"
    assert all(server.headers("authorization"))
    assert not any(other.headers("authorization") + other.headers("cookie"))


async def test_a_login_that_a_redirect_brings_is_not_used():
    async with (
        answering(has_file) as other,
        answering(leads_to(f"{other.url}/file".replace("://", "://their:word@"))) as server,
        opened(HTTPSource(f"{server.url}/file", options())) as source,
    ):
        assert await collect(source, 0, 10) == b"0123456789"
    assert not any(other.headers("authorization"))


@pytest.mark.parametrize(
    "start",
    [
        "HTTP/1.1 302 Moved\nLocation: /file\nContent-Encoding: gzip\nContent-Length: 999999999999\n\n",
        "HTTP/1.1 302 Moved\nLocation: /file\nTransfer-Encoding: chunked\nContent-Length: 0\n\n5f5e100\n",
        "HTTP/1.1 404 None\nContent-Encoding: gzip\nContent-Length: 999999999999\n\n",
        "HTTP/1.1 206 Part\nContent-Range: bytes 0-0/9\nContent-Length: 1\nTransfer-Encoding: chunked\n\n5f5e100\n",
    ],
)
async def test_bodies_of_redirects_and_refusals_are_not_read(start):
    sent, hung_up = 0, asyncio.Event()

    async def handle(reader, writer):
        nonlocal sent
        asked = (await reader.readuntil(b"\r\n\r\n")).decode()
        if asked.startswith("HEAD"):
            writer.write(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            writer.close()
            return
        writer.write(start.replace("\n", "\r\n").encode())
        try:
            while True:
                writer.write(bytes(1 << 20))
                await writer.drain()
                sent += 1 << 20
        except ConnectionError:
            hung_up.set()

    server = await asyncio.start_server(handle, "127.0.0.1")
    async with server:
        source = HTTPSource(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x", options())
        opening = asyncio.ensure_future(source.open())
        await asyncio.wait_for(hung_up.wait(), PATIENCE)
        await asyncio.gather(opening, return_exceptions=True)
        await source.close()
    assert sent < 64 << 20  # the capacity of the sockets' buffers


@pytest.mark.parametrize("vouched", [True, False])
async def test_https_becomes_http_only_where_a_checksum_is_known(start_nginx, content, grid, monkeypatch, vouched):  # noqa: F811
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    plain = start_nginx()
    secure = start_nginx(
        certificate=(grid.localhost.certificate, grid.localhost.key),
        more=f"location / {{ return 302 {plain.url('')}$uri; }}",
    )
    before = start_nginx(more=f"location / {{ return 302 {secure.url('')}$uri; }}")
    for server in (secure, before):
        source = HTTPSource(server.url("file"), options(vouched=vouched))
        if vouched:
            async with opened(source):
                assert await collect(source, 0, 10) == content[:10]
        else:
            with pytest.raises(PermissionRefused, match="from https to http") as caught:
                await source.open()
            assert "--checksum" in caught.value.remedy
            await source.close()


@pytest.mark.parametrize("place", LINK_LOCAL[:4])
async def test_no_metalink_is_fetched_from_link_local_addresses(place):
    async with answering(leads_to(place)) as server:
        assert not (await http_documents.head(f"{server.url}/x")).is_metalink
        with pytest.raises(PermissionRefused):
            await http_documents.get(f"{server.url}/x.meta4", 1000)
    assert len(server) == 2


async def test_a_metalink_that_is_sent_encoded_is_refused():
    bomb = "HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: 10\n\n0123456789"
    async with answering(lambda request: bomb) as server:
        with pytest.raises(Unsupported, match="gzip"):
            await http_documents.get(f"{server.url}/x.meta4", 1000)


async def test_document_has_the_address_of_the_first_server():
    reply = "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi"
    async with answering(lambda request: reply, "127.0.0.3") as last, answering(leads_to(last.url)) as first:
        found = await http_documents.get(f"{last.url}/x", 10)
        assert (found.content, found.address, found.secure) == (b"hi", "127.0.0.3", False)
        found = await http_documents.get(f"{first.url}/x", 10)
    assert (found.content, found.address) == (b"hi", "127.0.0.1")


async def test_a_redirect_is_followed_to_the_addresses_that_it_was_allowed_at():
    async def allowed(url):
        assert url == f"http://led.invalid:{port}/x"
        return ("127.0.0.1",)

    async with answering(has_file) as there:
        port = there.url.rpartition(":")[2]
        async with answering(leads_to(f"http://led.invalid:{port}/x")) as first:
            source = HTTPSource(f"{first.url}/x", replace(options(), leads=allowed))
            async with opened(source):
                assert await collect(source, 0, 10) == b"0123456789"
        assert set(there.headers("host")) == {f"led.invalid:{port}"}
