"""Servers that require data channel authentication: they get our identity and a proxy of ours, or an error."""

import contextlib
import logging
import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.x509 import load_der_x509_certificate, load_pem_x509_certificates

from coalloc.engine.globus_url_copy import URLCopySource
from coalloc.engine.gridftp import GridFTPSource, thirdparty
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.gsi import DelegationNeeded, GridSecurity, delegation, security
from coalloc.engine.gridftp.gsi.credential import Credential
from coalloc.engine.gridftp.gsi.delegation import own_subject, sign_proxy
from coalloc.engine.gridftp.gsi.security import warn_once
from coalloc.engine.gridftp.session import Session
from coalloc.engine.gridftp.storage import open_storage
from coalloc.engine.gridftp.thirdparty import open_third_party
from coalloc.errors import ConnectionLost, ServerSays, SourceError, Stalled, Unsupported
from tests.support.fetching import collect, opened, options, random_file
from tests.support.gsi import INHERIT_ALL, LIMITED, write_proxy_key
from tests.support.gsi_server import GreedyServer
from tests.support.waiting import PATIENCE


def credential(identity):
    return Credential(identity.certificate, identity.key)


def openssl(*arguments, given=b""):
    done = subprocess.run(
        ["openssl", *map(str, arguments)], input=given, timeout=PATIENCE, check=True, capture_output=True
    )
    return done.stdout


@pytest.fixture
def request_of_a_server(tmp_path):
    key = tmp_path / "server.key"
    write_proxy_key(key)
    return openssl("req", "-new", "-key", key, "-subj", "/CN=x", "-outform", "DER")


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


@pytest.mark.parametrize("policy", [INHERIT_ALL, LIMITED])
def test_delegated_proxy_is_limited_and_ends_the_chain(alice, request_of_a_server, policy):
    signed = sign_proxy(request_of_a_server, credential(alice.proxy(policy=policy)))
    text = openssl("x509", "-inform", "DER", "-noout", "-text", given=signed).decode()
    assert f"Policy Language: {LIMITED}" in text
    assert "Path Length Constraint: 0" in text


def test_delegated_proxy_lasts_an_hour_at_most(alice_proxy, request_of_a_server):
    signed = load_der_x509_certificate(sign_proxy(request_of_a_server, credential(alice_proxy)))
    assert signed.not_valid_after_utc - signed.not_valid_before_utc == timedelta(hours=1)
    assert signed.not_valid_before_utc <= datetime.now(UTC) < signed.not_valid_after_utc


@pytest.mark.parametrize("oldest", [True, False])
def test_delegated_proxy_expires_no_later_than_our_chain(alice, request_of_a_server, tmp_path, oldest, monkeypatch):
    """The same holds for all our dependencies."""
    ours = alice.proxy(days=1)
    ours = (ours if oldest else alice).proxy(days=1)
    monkeypatch.setattr(delegation, "LONGEST", timedelta(days=30))
    signed = load_der_x509_certificate(sign_proxy(request_of_a_server, credential(ours)))
    chain = load_pem_x509_certificates(ours.certificate.read_bytes())
    assert signed.not_valid_after_utc == min(each.not_valid_after_utc for each in chain)


@pytest.mark.parametrize("spoil", [lambda der: b"nonsense", lambda der: der[:-9] + bytes(9)])
def test_a_request_that_makes_no_sense(alice_proxy, request_of_a_server, spoil):
    with pytest.raises(ServerSays, match="request for a proxy is malformed"):
        sign_proxy(spoil(request_of_a_server), credential(alice_proxy))


def test_error_without_the_extra_names_the_package_to_install(alice_proxy, monkeypatch):
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
    """A security layer that protects data connections, logged in at a server; and both ends of such a connection."""
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
    with pytest.raises(Stalled, match="no answer on a data connection"):
        await agreed.secure(ours)


@pytest.mark.parametrize("allowed", [(), ("local",), ("localhost.example",), ("127.0.0.1",), ("example", "*")])
async def test_a_server_that_insists_gets_nothing_unless_its_very_name_is_allowed(grid, as_alice, allowed):
    async with GreedyServer(grid, grid.localhost) as server:
        for connect in (
            GridFTPSource(server.url(), options(delegate=frozenset(allowed))).open(),
            open_storage(server.url("/"), options(delegate=frozenset(allowed))),
        ):
            with pytest.raises(DelegationNeeded, match="it may insist on a proxy") as caught:
                await connect
            assert "--delegate localhost" in caught.value.remedy
    assert [each for each in server.commands if each.startswith("DCAU")] == [
        "DCAU N",
        "DCAU S /O=Test Grid/CN=Alice",
    ] * 2
    assert not server.delegated


@pytest.mark.parametrize("allowed", ["localhost", "LOCALHOST."])
async def test_allowed_server_gets_a_limited_proxy_and_a_warning_is_logged(grid, as_alice, caplog, allowed):
    warn_once.cache_clear()
    caplog.set_level(logging.WARNING)
    async with GreedyServer(grid, grid.localhost) as server:
        source = GridFTPSource(server.url(), options(delegate=frozenset({"other.example", allowed})))
        assert (await source.open()).size == 10
        await source.close()
    (proxy,) = server.delegated
    text = openssl("x509", "-inform", "DER", "-noout", "-text", given=proxy).decode()
    assert f"Policy Language: {LIMITED}" in text
    messages = [record.getMessage() for record in caplog.records if "delegated" in record.getMessage()]
    assert messages == [
        f"localhost:{server.port} insists on a proxy: a limited one, valid for an hour at most, was delegated to it"
    ]


@pytest.mark.parametrize("modes", ["N", "S", "NS"])
async def test_a_server_that_does_not_insist_gets_nothing_though_it_might(grid, as_alice, modes):
    async with GreedyServer(grid, grid.localhost, modes) as server:
        source = GridFTPSource(server.url(), options(delegate=frozenset({"localhost"})))
        await source.open()
        await source.close()
    assert len(server.logins) == 1
    assert not server.delegated


async def test_a_session_logs_in_again_when_its_proxy_nears_its_end(gsi_server, as_alice, monkeypatch):
    content = random_file(gsi_server.root / "file", 1000)
    monkeypatch.setattr(security, "ANYTHING_BUT_DELEGATION", ("Q",))
    host = frozenset({gsi_server.host})
    async with opened(GridFTPSource(gsi_server.url("file", "gsiftp"), options(delegate=host))) as source:
        assert await collect(source, 0, 1000) == content
        before = source._session
        assert await collect(source, 0, 10) == content[:10]
        assert source._session is before
        agreed = before._security
        life = agreed._renewed_at - datetime.now(UTC).timestamp()
        assert 40 * 60 < life < 55 * 60
        agreed._renewed_at = 0.0
        assert await collect(source, 10, 1000) == content[10:]
        assert source._session is not before
        assert source._session._security._delegated != agreed._delegated
        with pytest.raises(ConnectionLost, match="is about to expire"):
            await agreed.secure(None)


@pytest.mark.parametrize("allowed", [False, True])
async def test_globus_url_copy_is_given_what_is_good_for_nothing_unless_allowed(grid, as_alice, tmp_path, allowed):
    """The client always delegates: without permission a proxy that no one accepts, else one valid for an hour."""
    async with GreedyServer(grid, grid.localhost, "NSA") as server:
        source = URLCopySource(server.url(), options(delegate=frozenset({"localhost"} if allowed else ())))
        with contextlib.suppress(SourceError):  # it reveals no more than necessary
            await source.open()
    (proxy,) = server.delegated
    signed, given = tmp_path / "signed.pem", tmp_path / "given.pem"
    signed.write_bytes(openssl("x509", "-inform", "DER", given=proxy))
    given.write_bytes(source._proxy[1])
    verify = ["verify", "-allow_proxy_certs", "-CApath", grid.trusted, "-untrusted", given, signed]
    if allowed:
        assert openssl(*verify).endswith(b": OK\n")
    else:
        with pytest.raises(subprocess.CalledProcessError) as caught:
            openssl(*verify)
        assert b"path length" in caught.value.stderr
    made = load_der_x509_certificate(proxy)
    assert made.not_valid_after_utc <= datetime.now(UTC) + timedelta(hours=1)
    assert f"Policy Language: {LIMITED}" in openssl("x509", "-inform", "DER", "-noout", "-text", given=proxy).decode()


async def test_globus_url_copy_names_the_option(grid, as_alice):
    async with GreedyServer(grid, grid.localhost) as server:
        source = URLCopySource(server.url(), options())
        with pytest.raises(SourceError) as caught:
            await source.open()
    assert "--delegate" in caught.value.remedy


@pytest.fixture
def ends(start_gridftp, tmp_path, grid, as_alice, monkeypatch):
    """Two servers that require authenticated connections between each other."""
    monkeypatch.setattr(thirdparty, "UNPROTECTED", ("Q",))
    return [start_gridftp(tmp_path / name, env=grid.server_env(grid.localhost), anonymous=False) for name in ("a", "b")]


async def test_servers_that_insist_copy_to_each_other_where_both_are_allowed(ends):
    source, sink = ends
    content = random_file(source.root / "file", 300_000)
    between = [end.url("", "gsiftp") for end in (source, sink)]
    async with await open_third_party(between[0], between[1], options(delegate=frozenset({source.host}))) as pair:
        await pair.copy(str(source.root / "file"), str(sink.root / "file"), len(content))
    assert (sink.root / "file").read_bytes() == content


@pytest.mark.parametrize("allowed", [(), ("localhost",)])
async def test_servers_that_insist_do_not_copy_unless_both_are_allowed(ends, allowed):
    """One has another name than the allowed one."""
    source, sink = ends
    urls = source.url("", "gsiftp").replace(source.host, "localhost"), sink.url("", "gsiftp")
    with pytest.raises(DelegationNeeded, match="501 Bad DCAU mode"):
        await open_third_party(*urls, options(delegate=frozenset(allowed)))


async def test_no_end_of_a_copy_between_servers_gets_a_proxy_unless_both_are_allowed(grid, as_alice):
    async with GreedyServer(grid, grid.localhost) as one, GreedyServer(grid, grid.localhost) as other:
        ends = one.url(), other.url().replace("localhost", "127.0.0.1")
        with pytest.raises(DelegationNeeded, match="it may insist"):
            await open_third_party(*ends, options(delegate=frozenset({"localhost"})))
    assert not one.delegated
    assert not other.delegated
