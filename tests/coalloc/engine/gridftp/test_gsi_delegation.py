"""What a server that insists on data channel authentication gets: our name, and a proxy of ours; or an error."""

import socket
import subprocess
import sys

import pytest

from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.gsi import GridSecurity, security
from coalloc.engine.gridftp.gsi.credential import Credential
from coalloc.engine.gridftp.gsi.delegation import own_subject, sign_proxy
from coalloc.engine.gridftp.session import Session
from coalloc.errors import ConnectionLost, ServerSays, Stalled, Unsupported
from tests.support.fetching import collect, opened, options, random_file
from tests.support.gsi import LIMITED


def credential(identity):
    return Credential(identity.certificate, identity.key)


def openssl(*arguments, given=b""):
    done = subprocess.run(["openssl", *map(str, arguments)], input=given, timeout=30, check=True, capture_output=True)
    return done.stdout


@pytest.fixture
def request_of_a_server(tmp_path):
    key = tmp_path / "server.key"
    return openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-subj", "/CN=x", "-outform", "DER")


def test_own_subject_is_without_proxies(alice, alice_proxy):
    assert own_subject(credential(alice)) == "/O=Test Grid/CN=Alice"
    assert own_subject(credential(alice_proxy.proxy())) == "/O=Test Grid/CN=Alice"


def test_a_signed_proxy_is_accepted_by_openssl(grid, alice, alice_proxy, request_of_a_server, tmp_path):
    signed = tmp_path / "signed.pem"
    signed.write_bytes(
        openssl("x509", "-inform", "DER", given=sign_proxy(request_of_a_server, credential(alice_proxy)))
    )
    verify = ["verify", "-allow_proxy_certs", "-CApath", grid.trusted, "-untrusted", alice_proxy.certificate, signed]
    assert openssl(*verify).endswith(b": OK\n")
    issuer = openssl("x509", "-in", signed, "-noout", "-issuer").decode()
    assert issuer.rstrip().endswith(alice_proxy.subject.rpartition("=")[2])


def test_a_limited_proxy_stays_limited(alice, request_of_a_server):
    signed = sign_proxy(request_of_a_server, credential(alice.proxy(policy=LIMITED)))
    assert LIMITED in openssl("x509", "-inform", "DER", "-noout", "-text", given=signed).decode()


def test_a_delegated_proxy_lasts_half_a_day(alice_proxy, request_of_a_server):
    signed = sign_proxy(request_of_a_server, credential(alice_proxy))
    in_13_hours = ["x509", "-inform", "DER", "-noout", "-checkend", 13 * 3600]
    with pytest.raises(subprocess.CalledProcessError):
        openssl(*in_13_hours, given=signed)


@pytest.mark.parametrize("spoil", [lambda der: b"nonsense", lambda der: der[:-9] + bytes(9)])
def test_a_request_that_makes_no_sense(alice_proxy, request_of_a_server, spoil):
    with pytest.raises(ServerSays, match="request for a proxy makes no sense"):
        sign_proxy(spoil(request_of_a_server), credential(alice_proxy))


def test_without_the_extra_the_error_says_what_to_install(alice_proxy, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(Unsupported) as caught:
        own_subject(credential(alice_proxy))
    assert "pip install 'coget[gsi]'" in caught.value.remedy


async def test_most_servers_need_no_extra(gsi_server, as_alice, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    content = random_file(gsi_server.root / "file", 1000)
    async with opened(GridFTPSource(gsi_server.url("file", "gsiftp"), options())) as source:
        assert await collect(source, 0, 1000) == content


@pytest.fixture
async def exchange(gsi_server, as_alice):
    """A security that is to protect data connections, logged in at a server; and both ends of such a connection."""
    random_file(gsi_server.root / "file", 10)
    address = parse(gsi_server.url("file", "gsiftp"))
    agreed = GridSecurity(address, ("S",))
    session = await Session.open(address, options(), agreed, lambda _: None, pipelined=True)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield agreed, ours, theirs
    session.close()
    ours.close()
    theirs.close()


async def test_a_data_connection_that_ends_during_the_exchange(exchange):
    agreed, ours, theirs = exchange
    theirs.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionLost, match="ended a data connection during the login"):
        await agreed.secure(ours)


async def test_a_data_connection_that_is_reset(exchange):
    agreed, ours, theirs = exchange
    theirs.close()
    with pytest.raises(ConnectionLost, match="was lost"):
        await agreed.secure(ours)


async def test_a_data_connection_that_keeps_silent(exchange, monkeypatch):
    agreed, ours, _ = exchange
    monkeypatch.setattr(security, "DATA_SECONDS", 0.05)
    with pytest.raises(Stalled, match="keeps silent"):
        await agreed.secure(ours)
