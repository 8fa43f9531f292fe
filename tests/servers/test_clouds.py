"""Objects of Azure and Google Cloud Storage, at emulators that `make test-servers` installs."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from coalloc.engine import open_source
from coalloc.engine.clouds import CLOUDS
from coalloc.engine.span import Span
from coalloc.errors import AddressRefused, NoSuchFile, ReplicaChanged, SourceError, Unsupported
from coalloc.model.replicas import Origin
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, Azurite, Cloud, FakeGCS
from tests.support.coget import coget
from tests.support.fetching import collect, opened, options
from tests.support.nginx import Nginx
from tests.support.web import ranges, redirect, web_server

DATE = "Fri, 27 Feb 2026 10:00:00 GMT"
CONTENT = Random(3).randbytes(9_000_001)
KEY = "run 1/a%20b+é.bin"
CLOUD: dict[str, Callable[[Path], Cloud]] = {"az": Azurite, "gs": FakeGCS}


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """Leave out the user's own credentials."""
    pytest.importorskip("obstore")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for cloud in CLOUDS.values():
        for name in (*cloud.credentials, cloud.endpoint, *cloud.needed, *cloud.refused):
            monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=CLOUD)
def scheme(request):
    return request.param


@pytest.fixture
def cloud(scheme, tmp_path, monkeypatch):
    with CLOUD[scheme](tmp_path / "cloud") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.mark.parametrize("own", [False, True])
async def test_ranges_of_an_object(cloud, scheme, monkeypatch, own):
    for name, value in cloud.credentials.items() if own else ():
        monkeypatch.setenv(name, value)
    cloud.put(f"open/{KEY}", CONTENT)
    async with opened(open_source(f"{scheme}://open/{KEY}", "auto", options())) as source:
        assert (await source.open()).size == len(CONTENT)
        assert await collect(source, 4_999_999, 9_000_001) == CONTENT[4_999_999:]
        assert await collect(source, 0, 1) == CONTENT[:1]
        await source.rest()
        assert await collect(source, 7, 70_000) == CONTENT[7:70_000]


async def test_an_object_that_is_replaced_is_not_mixed(cloud, scheme):
    cloud.put("open/x", CONTENT)
    async with opened(open_source(f"{scheme}://open/x", "auto", options())) as source:
        cloud.put("open/x", CONTENT[::-1])
        with pytest.raises(ReplicaChanged):
            await source.fetch(Span(0, 100), lambda start, end, data: None)


async def test_an_object_that_is_missing(cloud, scheme):
    with pytest.raises(NoSuchFile, match="open/none"):
        await open_source(f"{scheme}://open/none", "auto", options()).open()


async def test_only_the_user_may_name_an_object(cloud, scheme):
    cloud.put("open/x", b"x")
    with pytest.raises(AddressRefused):
        await open_source(f"{scheme}://open/x", "auto", options().named(Origin("document"))).open()


def test_a_download_from_a_cloud_and_a_web_server(cloud, scheme, tmp_path):
    cloud.put("open/x", CONTENT)
    root = tmp_path / "root"
    root.mkdir()
    (root / "x").write_bytes(CONTENT)
    with Nginx(root, tmp_path / "n") as web:
        done = coget(
            [f"{scheme}://open/x", web.url("x"), "--strategy", "brute", "--json", "-o", "x"],
            tmp_path,
            COGET_HISTORY=str(tmp_path / "h"),
        )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_bytes() == CONTENT
    assert all(source["bytes"] for source in json.loads(done.stdout)["sources"])


@pytest.fixture
async def thief():
    """A server at another address that has everything."""
    async with web_server(ranges(CONTENT), host="127.0.0.2") as server:
        yield server


async def test_a_redirect_gets_no_token(scheme, thief, monkeypatch):
    token = {"az": "AZURE_STORAGE_TOKEN", "gs": "GOOGLE_BEARER_TOKEN"}[scheme]
    monkeypatch.setenv(token, "t0ken-of-the-tests")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    async with web_server(lambda heard: redirect(f"{thief.url}/x")) as server:
        monkeypatch.setenv(CLOUDS[scheme].endpoint, server.url)
        with pytest.raises(SourceError):
            await open_source(f"{scheme}://open/x", "auto", options()).open()
        assert server.all("Authorization")[0] == "Bearer t0ken-of-the-tests"
    assert "t0ken-of-the-tests" not in "".join(thief.heard)


@pytest.mark.parametrize("name", ["AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"])
async def test_a_signature_in_the_environment_is_refused(thief, monkeypatch, name):
    monkeypatch.setenv(name, "sv=2021-08-06&sig=S3cretSignature%3D&se=2030-01-01")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_ENDPOINT", thief.url)
    with pytest.raises(Unsupported) as caught:
        await open_source("az://open/x", "auto", options()).open()
    assert "S3cret" not in str(caught.value)
    assert "https://" in caught.value.remedy
    assert not thief.heard


LIES = {
    "Content-Range: bytes 0-99/2000": ReplicaChanged,
    "Content-Range: bytes 100-199/1000": SourceError,
    'Content-Range: bytes 0-99/1000\r\nETag: "2"': ReplicaChanged,
}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_about_a_range(monkeypatch, lie):
    def serve(heard):
        said = 'ETag: "1"\r\n' if "ETag" not in lie else ""
        if heard.startswith("HEAD"):
            head, said = "200 OK\r\nContent-Length: 1000", 'ETag: "1"\r\n'
        else:
            head = f"206 Part\r\nContent-Length: 100\r\n{lie}"
        return f"HTTP/1.1 {head}\r\n{said}Last-Modified: {DATE}\r\n\r\n".encode() + bytes(100)

    async with web_server(serve) as server:
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        async with opened(open_source("gs://open/x", "auto", options())) as source:
            with pytest.raises(LIES[lie]):
                await source.fetch(Span(0, 100), lambda start, end, data: None)


def test_a_closed_container_needs_valid_credentials_which_are_not_shown(tmp_path):
    with Azurite(tmp_path / "cloud") as cloud:
        cloud.put("closed/x", CONTENT)
        words, common = ["az://closed/x", "-o", "x"], {**cloud.environment, "COGET_HISTORY": str(tmp_path / "h")}
        assert coget(words, tmp_path, **common).returncode == 7
        wrong = base64.b64encode(b"another key").decode()
        refused = coget(words, tmp_path, **common, AZURE_STORAGE_ACCOUNT_KEY=wrong)
        assert refused.returncode == 7
        assert wrong not in refused.stdout + refused.stderr
        unreadable = coget(words, tmp_path, **common, AZURE_STORAGE_ACCOUNT_KEY="not base64!")
        assert unreadable.returncode not in (0, 1)
        assert "not base64!" not in unreadable.stdout + unreadable.stderr
        done = coget(words, tmp_path, **common, AZURE_STORAGE_ACCOUNT_KEY=ACCOUNT_KEY)
    assert done.returncode == 0, done.stderr
    assert ACCOUNT_KEY not in done.stdout + done.stderr
    assert (tmp_path / "x").read_bytes() == CONTENT
