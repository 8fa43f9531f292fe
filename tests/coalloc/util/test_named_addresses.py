"""Downloads of files that servers name: a public server names servers of this machine."""

import hashlib

import pytest

from coalloc import api
from coalloc.errors import CoallocError, UsageError
from coalloc.util import addresses
from coalloc.util.addresses import AddressClass, parse_networks
from tests.support.nginx import Nginx

CONTENT = b"the file" * 1000
METALINK = """<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="file"><size>8000</size>
<hash type="sha-256">{digest}</hash>{urls}</file></metalink>"""


@pytest.fixture
def public(monkeypatch):
    """Treat 127.0.0.2 as public."""
    known = (AddressClass.PUBLIC, parse_networks(["127.0.0.2"])[0])
    monkeypatch.setattr(addresses, "NETWORKS", (known, *addresses.NETWORKS))


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user's configuration, empty at first."""
    (tmp_path / "config" / "coget").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "coget"


@pytest.fixture
def servers(tmp_path):
    """A server that counts as public, and one that does not, of the same directory."""
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "file").write_bytes(CONTENT)
    with (
        Nginx(tmp_path / "export", tmp_path / "outer", host="127.0.0.2") as outer,
        Nginx(tmp_path / "export", tmp_path / "inner", host="127.0.0.3") as inner,
    ):
        yield outer, inner


def document(folder, *urls):
    """Write a Metalink of the file."""
    named = "".join(f"<url>{url}</url>" for url in urls)
    text = METALINK.format(digest=hashlib.sha256(CONTENT).hexdigest(), urls=named)
    (folder / "x.meta4").write_text(text)


async def fetched(source, tmp_path):
    (report,) = await api.download(api.Request((source,), output=tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == CONTENT
    return {each.url: each.error for each in report.sources}


@pytest.mark.parametrize("scheme", ["http", "ftp"])
async def test_the_metalink_of_a_public_server_names_no_inner_one(public, home, servers, tmp_path, scheme):
    outer, inner = servers
    document(tmp_path / "export", inner.url("file").replace("http", scheme))
    with pytest.raises(CoallocError) as caught:
        await fetched(outer.url("x.meta4"), tmp_path)
    assert caught.value.status == 7
    assert "127.0.0.3" in caught.value.message
    assert not (tmp_path / "got").exists()


async def test_an_inner_replica_beside_others_is_left_out(public, home, servers, tmp_path):
    outer, inner = servers
    document(tmp_path / "export", inner.url("file"), outer.url("file"))
    errors = await fetched(outer.url("x.meta4"), tmp_path)
    assert "such addresses are refused" in errors[inner.url("file")]
    assert errors[outer.url("file")] is None


async def test_networks_of_the_configuration_are_open_to_servers(public, home, servers, tmp_path):
    outer, inner = servers
    document(tmp_path / "export", inner.url("file"))
    (home / "config.toml").write_text('networks = ["127.0.0.3/32"]\n')
    await fetched(outer.url("x.meta4"), tmp_path)


async def test_the_users_own_words_and_metalinks_go_to_inner_servers(public, home, servers, tmp_path):
    _, inner = servers
    document(tmp_path, inner.url("file"))
    await fetched(str(tmp_path / "x.meta4"), tmp_path)
    (tmp_path / "got").unlink()
    await fetched(inner.url("file"), tmp_path)


async def test_a_local_metalink_names_no_link_local_address(home, tmp_path):
    document(tmp_path, "http://169.254.169.254/file", "ftp://[fe80::1]/file")
    with pytest.raises(CoallocError) as caught:
        await fetched(str(tmp_path / "x.meta4"), tmp_path)
    assert caught.value.status == 7


@pytest.mark.parametrize("setting", ['networks = ["169.254.0.0/16"]', 'networks = "x"', "networks = [1]"])
async def test_networks_that_make_no_sense(home, servers, tmp_path, setting):
    (home / "config.toml").write_text(setting)
    with pytest.raises(UsageError, match=r"`networks` in config\.toml"):
        await fetched(servers[1].url("file"), tmp_path)
