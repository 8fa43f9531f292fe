"""gsiftp:// against real servers: certificates of several kinds, TLS versions, data channel authentication."""

import asyncio
import hashlib
import subprocess
from functools import partial

import pytest

from coalloc.engine.gridftp import GridFTPFindings, GridFTPSource, gsi
from coalloc.engine.gridftp.gsi import GridSecurity
from coalloc.errors import PermissionRefused, Unsupported
from tests.support.fetching import collect, opened, options, random_file
from tests.support.gsi import LIMITED, Identity
from tests.support.waiting import PATIENCE

SIZE = 2_000_003
TLS = pytest.mark.parametrize("tls", ["TLSv1.2", "TLSv1.3"])


@pytest.fixture
def content(gsi_server):
    return random_file(gsi_server.root / "file", SIZE)


def source_of(server, path="file", **changes):
    return GridFTPSource(server.url(path, "gsiftp"), options(**changes))


def offer(monkeypatch, *modes):
    """Offer data channel authentication in these modes only."""
    monkeypatch.setattr(gsi, "GridSecurity", partial(GridSecurity, modes=modes))


@TLS
@pytest.mark.parametrize("mode", ["N", "S", "A"])
async def test_whole_file_and_ranges(start_gridftp, tmp_path, grid, as_alice, monkeypatch, tls, mode):
    server = start_gridftp(tmp_path, env=grid.server_env(grid.localhost, tls), anonymous=False)
    content = random_file(tmp_path / "file", SIZE)
    offer(monkeypatch, mode)
    async with opened(source_of(server)) as fetched:
        for start, end in [(0, SIZE), (0, 1), (SIZE - 1, SIZE), (999_999, 1_000_001)]:
            assert await collect(fetched, start, end) == content[start:end]
        assert fetched._session.control.protection._context._tls.version() == tls


@pytest.mark.parametrize("refused", [("Q", "S"), ("Q", "A")])
async def test_a_server_that_refuses_a_mode_is_offered_the_next(gsi_server, content, as_alice, monkeypatch, refused):
    offer(monkeypatch, *refused)
    async with opened(source_of(gsi_server)) as fetched:
        assert await collect(fetched, 5, SIZE) == content[5:]
        assert fetched._session._security.protects_data


async def test_a_server_that_refuses_all_modes(gsi_server, content, as_alice, monkeypatch):
    offer(monkeypatch, "Q")
    with pytest.raises(Unsupported, match="501 Bad DCAU mode"):
        await source_of(gsi_server).open()


@pytest.mark.parametrize(("mode", "kept"), [("N", True), ("S", False), ("A", False)])
async def test_a_connection_is_kept_if_it_needs_no_authentication(
    gsi_server, content, as_alice, monkeypatch, mode, kept
):
    monkeypatch.setattr("coalloc.engine.gridftp.source.FAR", 0.0)
    offer(monkeypatch, mode)
    async with opened(
        GridFTPSource(gsi_server.url("file", "gsiftp"), options(), GridFTPFindings(connects_back=True))
    ) as fetched:
        assert fetched.queues == kept
        for start in (7, 8):
            assert await collect(fetched, start, SIZE) == content[start:]


async def test_a_checksum_beside_a_fetch(gsi_server, content, as_alice):
    async with opened(source_of(gsi_server)) as fetched:
        received, digest = await asyncio.gather(collect(fetched, 0, SIZE), fetched.checksum("md5", 0, SIZE))
    assert received == content
    assert digest == hashlib.md5(content).hexdigest()


@pytest.mark.parametrize("name", ["data-ä", "with space", "日本", "50%"])
async def test_names(gsi_server, as_alice, name):
    content = random_file(gsi_server.root / name, 1000)
    async with opened(source_of(gsi_server, name)) as fetched:
        assert await collect(fetched, 10, 1000) == content[10:]


@pytest.mark.parametrize(
    "make",
    [
        lambda alice: alice.proxy().proxy(),
        lambda alice: alice.proxy(policy=LIMITED),
    ],
    ids=["second level", "limited"],
)
@pytest.mark.parametrize("mode", ["S", "A"])
async def test_kinds_of_proxies(gsi_server, content, alice, become, monkeypatch, make, mode):
    """Modes S and A use the proxy's identity and sign with it, and so test more than the login."""
    become(make(alice))
    offer(monkeypatch, mode)
    async with opened(source_of(gsi_server)) as fetched:
        assert await collect(fetched, 0, SIZE) == content


async def test_elliptic_curves(gsi_server, content, grid, become, monkeypatch):
    """Mode A is left out: the server makes the delegated proxy's key as long as ours, and finds it too short."""
    user = grid.user("Elli", kind="ec")
    grid.map(user)
    become(user.proxy(kind="ec"))
    offer(monkeypatch, "S")
    async with opened(source_of(gsi_server)) as fetched:
        assert await collect(fetched, 0, 9) == content[:9]


async def test_a_user_certificate_without_proxy(gsi_server, content, grid, alice, no_proxy, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(grid.trusted))
    monkeypatch.setenv("X509_USER_CERT", str(alice.certificate))
    monkeypatch.setenv("X509_USER_KEY", str(alice.key))
    async with opened(source_of(gsi_server)) as fetched:
        assert await collect(fetched, 0, 9) == content[:9]


def test_one_proxy_of_grid_proxy_init_serves_us_and_globus_url_copy(gsi_server, content, grid, alice, become, tmp_path):
    made, theirs = tmp_path / "made", tmp_path / "theirs"
    become(Identity("", made, made))
    url = gsi_server.url("file", "gsiftp").replace(gsi_server.host, "localhost")
    init = ["grid-proxy-init", "-q", "-cert", alice.certificate, "-key", alice.key, "-out", made]
    for command in (init, ["globus-url-copy", url, f"file://{theirs}"]):
        subprocess.run(command, timeout=PATIENCE, check=True)

    async def fetch():
        async with opened(GridFTPSource(url, options())) as fetched:
            return await collect(fetched, 0, SIZE)

    assert asyncio.run(fetch()) == theirs.read_bytes() == content


async def test_data_connection_without_the_delegated_proxy_is_refused(gsi_server, content, as_alice, monkeypatch):
    """The server authenticates in mode A with the proxy that it was given; here the client takes it for another one."""
    offer(monkeypatch, "A")
    async with opened(source_of(gsi_server)) as fetched:
        fetched._session._security._delegated = b"of someone else"
        with pytest.raises(PermissionRefused, match="presented another certificate than the proxy"):
            await collect(fetched, 0, SIZE)
