"""FTP over TLS with servers and attackers that steal, lie and cut off; `tests/contracts` uses a real vsftpd."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from random import Random
from shutil import copytree

import pytest

from coalloc.depot.dialer import DepotRoutes, RelayedDialer
from coalloc.depot.route import DepotRoute
from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.storage import open_storage
from coalloc.engine.gridftp.tls import TLSData, tls_trust
from coalloc.errors import (
    ConnectionLost,
    LoginRefused,
    NoSuchFile,
    NotThatProtocol,
    PermissionRefused,
    SourceError,
    Unsupported,
)
from coalloc.util.addresses import ANYWHERE
from tests.support.depot import LOOPBACK, depots
from tests.support.fetching import collect, opened, options
from tests.support.scripted import raw_server
from tests.support.waiting import wait_until

CONTENT = Random(7).randbytes(300_000)


@pytest.fixture
def tls(grid, monkeypatch):
    """The server's side of TLS, which coget trusts."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(grid.localhost.certificate, grid.localhost.key)
    return context


class Behaviour:
    """The behaviour of a server, and the commands that it received in plain text and over TLS."""

    def __init__(self, context, **replies):
        self.context = context
        self.replies = {
            "AUTH": "234 go",
            "USER": "331 password?",
            "PASS": "230 in",
            "FEAT": "211-Features\r\n REST STREAM\r\n211 End",
            "SIZE": f"213 {len(CONTENT)}",
            "REST": "350 from there",
            "RETR": "150 here",
            **replies,
        }
        self.plain, self.secret = [], []
        self.sent = CONTENT
        self.data_tls = context
        self.silent = False
        self.port = 0
        self.inserted = b""
        self.implicit = False

    @property
    def url(self):
        return f"{'ftps' if self.implicit else 'ftpes'}://ann:hush@127.0.0.1:{self.port}/x"


@asynccontextmanager
async def ftp(behaviour):
    """Run a server with this behaviour."""
    over = asyncio.Event()

    async def data(reader, writer):
        if behaviour.silent:
            await reader.read()
            return
        if behaviour.data_tls:
            await writer.start_tls(behaviour.data_tls)
        writer.write(behaviour.sent)
        await writer.drain()
        if behaviour.sent is not CONTENT:
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)  # without TLS's own end
        over.set()

    async def control(reader, writer):
        heard = behaviour.plain
        if behaviour.implicit:
            await writer.start_tls(behaviour.context)
            heard = behaviour.secret
        writer.write(b"220 ready\r\n")
        while line := await reader.readline():
            verb = line.decode().split()[0]
            heard.append(verb)
            if verb == "PASV":
                writer.write(f"227 (127,0,0,1,{data_port >> 8},{data_port & 255})\r\n".encode())
                continue
            reply = behaviour.replies.get(verb, "200 ok")
            writer.write(f"{reply}\r\n".encode() + (behaviour.inserted if verb == "AUTH" else b""))
            await writer.drain()
            if reply.startswith("150"):
                await over.wait()
                writer.write(b"226 done\r\n")
            if verb == "AUTH" and reply.startswith("234"):
                await writer.start_tls(behaviour.context)
                heard = behaviour.secret

    async with raw_server(data) as data_port, raw_server(control) as behaviour.port:
        yield behaviour


async def failure(url):
    source = GridFTPSource(url, options())
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    assert "hush" not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("implicit", [True, False])
async def test_login_and_data_are_encrypted(tls, implicit):
    behaviour = Behaviour(tls)
    behaviour.implicit = implicit
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        assert await collect(source, 0, len(CONTENT)) == CONTENT
    assert behaviour.plain == ([] if implicit else ["AUTH"])
    assert {"USER", "PASS", "PBSZ", "PROT", "RETR"} <= set(behaviour.secret)


@pytest.mark.parametrize("implicit", [True, False])
async def test_both_connections_go_over_a_depot(tls, tmp_path, implicit):
    behaviour = Behaviour(tls)
    behaviour.implicit = implicit
    with depots(tmp_path, LOOPBACK) as (depot,):
        dialer = RelayedDialer(ANYWHERE, DepotRoutes(DepotRoute((depot.place,))))
        async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options(dialer=dialer))) as source:
            assert await collect(source, 0, len(CONTENT)) == CONTENT
        assert wait_until(lambda: len(depot.lines) >= 2)


@pytest.mark.parametrize("reply", ["500 what?", "502 no", "534 not here", "200 ok", "230 you are in", "421 busy"])
async def test_a_server_that_refuses_tls_gets_no_login(tls, reply):
    async with ftp(Behaviour(tls, AUTH=reply)) as behaviour:
        await failure(behaviour.url)
    assert set(behaviour.plain) == {"AUTH"}


@pytest.mark.parametrize("inserted", [b"230 you are in\r\n", b"230-you\r\n", b"230 yo", b"150 x\r\n", b"2"])
async def test_text_that_an_attacker_inserts_before_tls_ends_the_session(tls, inserted):
    """The text must not be taken for an answer to what is sent over TLS (CVE-2011-0411)."""
    async with ftp(Behaviour(tls)) as behaviour:
        behaviour.inserted = inserted
        error = await failure(behaviour.url)
    assert isinstance(error, PermissionRefused | ConnectionLost | NotThatProtocol)
    assert not behaviour.secret


async def test_a_certificate_of_another_authority_or_host_gets_no_login(tls, grid, monkeypatch):
    other = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    elsewhere = grid.host("elsewhere.example", "DNS:elsewhere.example", "elsewhere")
    other.load_cert_chain(elsewhere.certificate, elsewhere.key)
    for implicit in (True, False):
        behaviour = Behaviour(other)
        behaviour.implicit = implicit
        async with ftp(behaviour):
            assert type(await failure(behaviour.url)) is PermissionRefused
        assert not behaviour.secret
    monkeypatch.delenv("SSL_CERT_FILE")
    async with ftp(Behaviour(tls)) as behaviour:
        error = await failure(behaviour.url)
    assert "SSL_CERT_FILE" in error.remedy
    assert not behaviour.secret


@pytest.mark.parametrize("implicit", [True, False])
async def test_a_grids_authority_is_trusted_unless_it_has_revoked_the_server(
    tls, grid, monkeypatch, tmp_path, implicit
):
    monkeypatch.delenv("SSL_CERT_FILE")
    monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
    behaviour = Behaviour(tls)
    behaviour.implicit = implicit
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        assert await collect(source, 0, len(CONTENT)) == CONTENT
    strict = copytree(grid.trusted, tmp_path / "strict")
    grid.revoke(grid.localhost, to=strict / f"{grid.hashed()}.r0")
    monkeypatch.setenv("X509_CERT_DIR", str(strict))
    again = Behaviour(tls)
    again.implicit = implicit
    async with ftp(again):
        assert "was revoked" in (await failure(again.url)).message
    assert not again.secret


async def test_data_of_a_revoked_server_are_not_accepted(tls, grid, monkeypatch, tmp_path):
    monkeypatch.delenv("SSL_CERT_FILE")
    stolen = grid.host("localhost", "IP:127.0.0.1", "stolen")
    strict = copytree(grid.trusted, tmp_path / "strict")
    grid.revoke(stolen, to=strict / f"{grid.hashed()}.r0")
    monkeypatch.setenv("X509_CERT_DIR", str(strict))
    behaviour = Behaviour(tls)
    behaviour.data_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    behaviour.data_tls.load_cert_chain(stolen.certificate, stolen.key)
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        with pytest.raises(PermissionRefused, match="was revoked"):
            await collect(source, 0, len(CONTENT))


@pytest.mark.parametrize("reply", ["536 only clear", "350 not yet, hush"])
async def test_a_server_that_does_not_encrypt_data_sends_none(tls, reply):
    async with ftp(Behaviour(tls, PROT=reply)) as behaviour:
        assert type(await failure(behaviour.url)) is Unsupported
    assert "RETR" not in behaviour.secret


@pytest.mark.parametrize("reply", ["200 hush", "500 hush"])
async def test_a_server_without_tls_gets_no_login_and_its_reply_is_shown_without_the_password(tls, reply):
    async with ftp(Behaviour(tls, AUTH=reply)) as behaviour:
        assert type(await failure(behaviour.url)) is Unsupported
    assert "PASS" not in behaviour.plain


async def test_a_refused_login_is_named(tls):
    async with ftp(Behaviour(tls, PASS="530 hush is wrong")) as behaviour:
        assert type(await failure(behaviour.url)) is LoginRefused


@pytest.mark.parametrize("sent", [CONTENT, b"", CONTENT[:100_000]])
async def test_data_in_plain_text_are_not_accepted(tls, sent):
    behaviour = Behaviour(tls)
    behaviour.data_tls, behaviour.sent = None, sent
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        with pytest.raises(SourceError):
            await collect(source, 0, len(CONTENT))


@pytest.mark.parametrize("seed", range(3))
async def test_all_whole_records_that_have_arrived_are_decrypted(tls, seed):
    """Otherwise, a transfer would wait for a socket that has nothing more to report."""
    random, buffer = Random(seed), memoryview(bytearray(1 << 20))
    arrived, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = tls.wrap_bio(arrived, sent, server_side=True)
    far, near = socket.socketpair()
    with far, near:
        far.setblocking(False)
        near.setblocking(False)
        stream = TLSData(near, tls_trust().context, "127.0.0.1")
        shaking = asyncio.create_task(stream.shake_hands())
        while not shaking.done():
            with suppress(ssl.SSLWantReadError):
                server.do_handshake()
            far.sendall(sent.read())
            with suppress(BlockingIOError):
                arrived.write(far.recv(1 << 16))
            await asyncio.sleep(0)
        arrived.write(far.recv(1 << 16))
        server.do_handshake()
        received, done = bytearray(), 0
        while done < len(CONTENT):
            done += server.write(CONTENT[done : done + random.randrange(1, 40_000)])
            records = sent.read()
            cut = random.randrange(len(records) + 1)
            for part in (records[:cut], records[cut:]):
                far.sendall(part)
                with suppress(BlockingIOError):
                    while count := stream.recv_into(buffer, random.choice([1000, 20_000, 40_000, len(buffer)])):
                        received += buffer[:count]
            assert received == CONTENT[:done]


@pytest.mark.parametrize("size", [0, 1, 20_000, len(CONTENT) - 1])
async def test_cut_off_data_are_not_whole(tls, size):
    behaviour = Behaviour(tls)
    behaviour.sent = CONTENT[:size]
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        with pytest.raises(ConnectionLost):
            await collect(source, 0, len(CONTENT))


async def test_a_server_that_refuses_a_file_need_not_begin_tls(tls):
    behaviour = Behaviour(tls, RETR="550 no such file")
    behaviour.silent = True
    async with ftp(behaviour), opened(GridFTPSource(behaviour.url, options())) as source:
        with pytest.raises(NoSuchFile):
            await collect(source, 0, len(CONTENT))


async def test_a_server_without_tls_at_the_start_is_named(tls):
    async with ftp(Behaviour(tls)) as behaviour:
        error = await failure(behaviour.url.replace("ftpes", "ftps"))
    assert type(error) is NotThatProtocol
    assert "ftpes://" in error.remedy


@pytest.mark.parametrize(
    ("url", "port", "begins"),
    [
        ("ftps://host/x", 990, "implicit"),
        ("ftps://host:2121/x", 2121, "implicit"),
        ("ftps://host:21/x", 21, "explicit"),
        ("FTPES://host/x", 21, "explicit"),
        ("ftpes://host:990/x", 990, "explicit"),
        ("ftp://host/x", 21, None),
    ],
)
def test_scheme_and_port_choose_the_beginning_of_tls(url, port, begins):
    address = parse(url)
    assert (address.port, address.tls) == (port, begins)


async def test_nothing_is_written_over_tls(tls):
    async with ftp(Behaviour(tls)) as behaviour:
        with pytest.raises(Unsupported):
            await open_storage(behaviour.url, options())
    assert not behaviour.plain
