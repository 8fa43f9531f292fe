"""Checks of a client on a protected control connection: records and alerts."""

import contextlib
import ssl
from base64 import b64decode, b64encode

import pytest

from coalloc.engine.gridftp.gsi.context import ContextProtection, SecurityContext
from coalloc.engine.gridftp.gsi.credential import Credential, tls_context
from coalloc.errors import ConnectionLost, PermissionRefused, ServerSays, Unsupported


class Server:
    """The server's end of a context; TLS 1.2, where a record's number is all its state."""

    def __init__(self, host) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        context.load_cert_chain(host.certificate, host.key)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_side=True)

    def answer(self, token: bytes) -> bytes:
        self.incoming.write(token)
        with contextlib.suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.outgoing.read()

    def read(self, token: bytes) -> bytes:
        self.incoming.write(token)
        return self.tls.read(1000)

    def reply(self, plain: bytes, code: bytes = b"632 ") -> bytes:
        self.tls.write(plain)
        return code + b64encode(self.outgoing.read())


def client(grid, alice_proxy) -> SecurityContext:
    credential = Credential(alice_proxy.certificate, alice_proxy.key)
    return SecurityContext(tls_context(credential, grid.trusted), "localhost", "localhost:2811", lambda tls: None)


@pytest.fixture
def ends(grid, alice_proxy):
    server, context = Server(grid.localhost), client(grid, alice_proxy)
    token = context.step()
    while not context.complete:
        token = context.step(server.answer(token))
    assert server.read(token) == b"0"
    assert context.step() == b""  # a server that asks forever gets nothing more
    return server, ContextProtection(context)


def test_commands_are_sealed(ends):
    server, protection = ends
    sealed = protection.seal(b"USER alice\r\n")
    assert sealed.startswith(b"ENC ")
    assert sealed.endswith(b"\r\n")
    assert b"alice" not in b64decode(sealed[4:])
    assert server.read(b64decode(sealed[4:])) == b"USER alice\r\n"


@pytest.mark.parametrize("code", [b"631 ", b"632 ", b"633 ", b"632-"])
def test_replies_are_opened(ends, code):
    server, protection = ends
    assert protection.open(server.reply(b"230 Welcome.\r\n", code)) == b"230 Welcome.\r\n"
    assert protection.open(server.reply(b"230 Welcome.", code)) == b"230 Welcome.\r\n"


def test_a_reply_longer_than_a_record(ends):
    server, protection = ends
    long = b"250 " + b"x" * 50_000 + b"\r\n"
    assert protection.open(server.reply(long)) == long


def test_the_end_of_a_session_needs_no_protection(ends):
    _, protection = ends
    assert protection.open(b"421 Idle timeout.") == b"421 Idle timeout.\r\n"


@pytest.mark.parametrize(
    "line",
    [
        b"227 Entering Passive Mode (10,0,0,1,4,1)",
        b"213 5",
        b"550 No such file.",
        b"550-No such file.",
        b"421-Idle",
        b"530 Login incorrect.",
        b"4",
        b"",
        b" 632 AAAA",
        b"6329",
        b"500 " + b"x" * 60_000,
    ],
)
def test_any_other_reply_does(ends, line):
    _, protection = ends
    with pytest.raises(ServerSays, match="without protection") as caught:
        protection.open(line)
    assert caught.value.remedy
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("spoil", [lambda line: line[:-8] + b"AAAAAAA=", lambda line: b"632 !!"])
def test_a_damaged_reply(ends, spoil):
    server, protection = ends
    with pytest.raises(ConnectionLost, match="damaged"):
        protection.open(spoil(server.reply(b"230 Welcome.\r\n")))


def test_a_repeated_reply(ends):
    server, protection = ends
    line = server.reply(b"230 Welcome.\r\n")
    protection.open(line)
    with pytest.raises(ConnectionLost, match="damaged"):
        protection.open(line)


@pytest.mark.parametrize(
    ("alert", "error"), [(48, PermissionRefused), (45, PermissionRefused), (70, Unsupported), (40, Unsupported)]
)
def test_alerts_in_place_of_words(grid, alice_proxy, alert, error):
    context = client(grid, alice_proxy)
    context.step()
    with pytest.raises(error, match="localhost:2811"):
        context.step(bytes([21, 3, 3, 0, 2, 2, alert]))


def test_answers_that_are_not_tls_are_refused(grid, alice_proxy):
    context = client(grid, alice_proxy)
    context.step()
    with pytest.raises(Unsupported, match="TLS handshake failed"):
        context.step(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_a_server_whose_certificate_has_expired(grid, alice_proxy):
    server, context = Server(grid.host(stem="past", days=-1)), client(grid, alice_proxy)
    with pytest.raises(PermissionRefused, match="the server's certificate is not trusted: certificate has expired"):
        context.step(server.answer(context.step()))
