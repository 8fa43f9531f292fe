"""Failures at gsiftp:// servers and their messages: real servers, wrong certificates."""

import pytest

from coalloc.engine.gridftp import GridFTPSource
from coalloc.errors import NotThatProtocol, PermissionRefused, SourceError
from tests.support.fetching import options
from tests.support.gsi import Authority


@pytest.fixture(scope="module")
def other_grid(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("other"), "Other CA")


async def failure(server, scheme="gsiftp", host=None) -> SourceError:
    """Return the error of opening a file at the server."""
    url = server.url("file", scheme).replace(server.host, host or server.host)
    source = GridFTPSource(url, options())
    try:
        with pytest.raises(SourceError) as caught:
            await source.open()
    finally:
        await source.close()
    assert caught.value.permanent
    assert str(server.port) in caught.value.message or "proxy-" in caught.value.message
    return caught.value


async def test_a_user_without_account(gsi_server, grid, become):
    become(grid.user("Bob").proxy())
    error = await failure(gsi_server)
    assert isinstance(error, PermissionRefused)
    assert "has no account for you: the server says 530 Gridmap lookup failure" in error.message
    assert "/O=Test Grid/CN=Bob" in error.message
    assert "map your certificate" in error.remedy


async def test_an_account_that_is_not_ours(gsi_server, as_alice):
    error = await failure(gsi_server, host=f"nobody@{gsi_server.host}")
    assert isinstance(error, PermissionRefused)
    assert "account" in error.message


async def test_an_expired_proxy(gsi_server, alice, become):
    proxy = alice.proxy(days=-1)
    become(proxy)
    error = await failure(gsi_server)
    assert error.message == f"{proxy.certificate} has expired"
    assert "grid-proxy-init" in error.remedy


async def test_a_proxy_of_a_ca_that_the_server_does_not_know(gsi_server, other_grid, become, monkeypatch, grid):
    become(other_grid.user("Eve").proxy())
    error = await failure(gsi_server)
    assert isinstance(error, PermissionRefused)
    assert "Cannot find trusted CA certificate" in error.message
    assert "trust your CA" in error.remedy


async def test_a_server_of_a_ca_that_is_not_known_here(gsi_server, other_grid, as_alice, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(other_grid.trusted))
    error = await failure(gsi_server)
    assert isinstance(error, PermissionRefused)
    assert "the server's certificate is not trusted" in error.message
    assert "X509_CERT_DIR" in error.remedy


@pytest.mark.parametrize(
    ("common_name", "names"), [("localhost", ""), ("host/localhost", ""), ("elsewhere", "DNS:localhost")]
)
async def test_certificates_that_name_the_host(start_gridftp, tmp_path, grid, as_alice, common_name, names):
    host = grid.host(common_name, names, stem="named")
    server = start_gridftp(tmp_path, env=grid.server_env(host), anonymous=False)
    (tmp_path / "file").write_bytes(b"12345")
    source = GridFTPSource(server.url("file", "gsiftp").replace(server.host, "localhost"), options())
    assert (await source.open()).size == 5
    await source.close()
    error = await failure(server)
    assert "not for 127.0.0.1" in error.message


@pytest.mark.parametrize(("common_name", "names"), [("elsewhere", ""), ("localhost", "DNS:elsewhere")])
async def test_a_certificate_of_another_host(start_gridftp, tmp_path, grid, as_alice, common_name, names):
    host = grid.host(common_name, names, stem="another")
    server = start_gridftp(tmp_path, env=grid.server_env(host), anonymous=False)
    error = await failure(server, host="localhost")
    assert isinstance(error, PermissionRefused)
    assert f"localhost:{server.port} presented a certificate for elsewhere, not for localhost" in error.message


async def test_an_expired_host_certificate(start_gridftp, tmp_path, grid, as_alice):
    """Globus servers detect it themselves; the server in `test_gsi_context` does not."""
    host = grid.host(stem="expired", days=-1)
    error = await failure(start_gridftp(tmp_path, env=grid.server_env(host), anonymous=False))
    assert "has expired 1440 minutes ago" in error.message


async def test_a_server_may_not_show_a_proxy(start_gridftp, tmp_path, grid, as_alice):
    """A stolen proxy of some host must not pass for that host."""
    proxy = grid.localhost.proxy()
    server = start_gridftp(tmp_path, env=grid.server_env(proxy), anonymous=False)
    error = await failure(server)
    assert isinstance(error, PermissionRefused)
    assert "proxy certificates not allowed" in error.message


async def test_gsiftp_at_a_server_without_certificate(start_gridftp, tmp_path, as_alice, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    server = start_gridftp(tmp_path / "export", env={"X509_CERT_DIR": "/nonexistent"})
    error = await failure(server)
    assert isinstance(error, NotThatProtocol)
    assert "offers no login by certificate: the server says 530" in error.message
    assert "ftp://" in error.remedy


async def test_ftp_at_a_server_that_wants_certificates(gsi_server):
    error = await failure(gsi_server, "ftp")
    assert isinstance(error, PermissionRefused)
    assert "530 Must perform GSSAPI authentication" in error.message
    assert "gsiftp://" in error.remedy


async def test_no_proxy_at_all(gsi_server, no_proxy, tmp_path):
    source = GridFTPSource(gsi_server.url("file", "gsiftp"), options())
    with pytest.raises(PermissionRefused, match="no proxy certificate found") as caught:
        await source.open()
    assert "grid-proxy-init" in caught.value.remedy
