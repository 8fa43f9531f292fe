"""Objects of Azure and Google Cloud Storage, at emulators that `make test-servers` installs."""

import asyncio
import base64
import json
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from coalloc.engine import clouds, open_lister, open_source
from coalloc.engine.clouds import CLOUDS
from coalloc.engine.span import Span
from coalloc.errors import AddressRefused, NoSuchFile, ReplicaChanged, SourceError, Unsupported
from coalloc.model.replicas import Origin
from coalloc.util.checksums import hasher
from tests.support.clouds import ACCOUNT, ACCOUNT_KEY, Azurite, Cloud, FakeGCS
from tests.support.coget import coget
from tests.support.fetching import collect, opened, options
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.web import answer, ranges, redirect, web_server

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
        for name in (*cloud.all_credentials, cloud.endpoint, *cloud.needed, *cloud.refused):
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


NAMES = {"run/a": b"a", "run/sub/é b%20+?": CONTENT, "run/empty": b"", "run/sub/deep/x": b"x", "run2/other": b"no"}


def test_directories(cloud, scheme, tmp_path):
    for name, content in NAMES.items():
        cloud.put(f"open/{name}", content)
    cloud.put("open/run/sub/", b"")  # programs mark directories so
    common = {**os.environ, **cloud.environment, "COGET_HISTORY": str(tmp_path / "h")}
    below = {name.removeprefix("run/"): content for name, content in NAMES.items() if name.startswith("run/")}
    for words, to in ((["-r"], "-o"), (["collect"], "--to")):
        folder = tmp_path / words[0]
        done = coget([*words, f"{scheme}://open/run/", to, f"{folder}/"], tmp_path, **common)
        assert done.returncode == 0, done.stderr
        assert {
            str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
        } == below
    refused = coget(["-r", f"{scheme}://open/none/", "-o", "none/"], tmp_path, **common)
    assert refused.returncode == 3
    assert "there is no object below it" in refused.stderr


async def listed(url):
    lister = open_lister(url, options())
    return [entry async for entries in lister.list(url) for entry in entries]


async def test_only_the_user_may_name_a_directory(cloud, scheme):
    with pytest.raises(AddressRefused):
        [entries async for entries in open_lister(f"{scheme}://open/", options().named(Origin("document"))).list("")]


async def test_a_key_that_is_no_path_ends_a_listing(cloud, scheme):
    cloud.put("open/run//x", b"x")
    with pytest.raises(Unsupported, match="obstore cannot name a key"):
        await listed(f"{scheme}://open/run/")


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


@pytest.mark.parametrize("variable", ["AZURE_STORAGE_TOKEN", "AZURE_STORAGE_ACCOUNT_KEY", "GOOGLE_BEARER_TOKEN"])
async def test_a_redirect_of_the_question_for_checksums_is_not_followed(thief, monkeypatch, variable):
    secret = base64.b64encode(b"t0ken-of-the-tests").decode()
    monkeypatch.setenv(variable, secret)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    scheme = "gs" if variable.startswith("GOOGLE") else "az"
    heard = []

    def serve(request):
        heard.append(request)
        found = answer("200 OK", CONTENT, ETag='"1"', Last_Modified=DATE)
        return found if len(heard) == 1 else redirect(f"{thief.url}/x")

    async with web_server(serve) as server:
        monkeypatch.setenv(CLOUDS[scheme].endpoint, server.url)
        source = open_source(f"{scheme}://open/x", "auto", options())
        assert (await source.open()).checksums == ()
        await source.close()
    assert len(heard) >= 2
    assert not thief.heard


OTHERS = {
    "AZURE_STORAGE_ENDPOINT": "https://127.0.0.1:1",
    "AZURE_endpoint": "https://127.0.0.1:1",
    "AZURE_STORAGE_USE_EMULATOR": "true",
    "AZURE_USE_FABRIC_ENDPOINT": "true",
}


@pytest.mark.parametrize("name", OTHERS)
def test_only_the_server_that_obstore_uses_is_asked_for_checksums(monkeypatch, name):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    if not name.endswith("FABRIC_ENDPOINT"):  # obstore asks the server, which is a real one, for a signature
        monkeypatch.setenv("AZURE_STORAGE_TOKEN", "t0ken-of-the-tests")
    assert "blob.core.windows.net" in clouds.CloudObjects("az://open/x", 1.0).head_request().url
    monkeypatch.setenv(name, OTHERS[name])
    assert clouds.CloudObjects("az://open/x", 1.0).head_request() is None


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
CLIENT = {"AZURE_CLIENT_ID": "me", "AZURE_TENANT_ID": "us", "AZURE_CLIENT_SECRET": "S3cret"}


@pytest.mark.parametrize("lie", LIES)
async def test_a_server_that_lies_about_a_range(scheme, monkeypatch, lie):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)

    def serve(heard):
        said = 'ETag: "1"\r\n' if "ETag" not in lie else ""
        if heard.startswith("HEAD"):
            head, said = "200 OK\r\nContent-Length: 1000", 'ETag: "1"\r\n'
        else:
            head = f"206 Part\r\nContent-Length: 100\r\n{lie}"
        return f"HTTP/1.1 {head}\r\n{said}Last-Modified: {DATE}\r\n\r\n".encode() + bytes(100)

    async with web_server(serve) as server:
        monkeypatch.setenv(CLOUDS[scheme].endpoint, server.url)
        async with opened(open_source(f"{scheme}://open/x", "auto", options())) as source:
            with pytest.raises(LIES[lie]):
                await source.fetch(Span(0, 100), lambda start, end, data: None)


def parts_in_turn(*parts, tag='"1"'):
    """Answer HEAD by the head of an object of 1000 bytes, and GET by these parts: first byte, length, date, content."""
    left = list(parts)

    def serve(heard):
        if heard.startswith("HEAD"):
            return answer("200 OK", Content_Length=1000, ETag=tag, Last_Modified=DATE)
        first, length, date, body = left.pop(0)
        place = f"bytes {first}-99/1000"
        return answer("206 Part", body, Content_Length=length, Content_Range=place, ETag=tag, Last_Modified=date)

    return serve


async def test_an_object_with_an_empty_tag_that_is_replaced(monkeypatch):
    parts = [(0, 100, date, bytes(100)) for date in (DATE, DATE.replace("2026 10", "2026 11"))]
    async with web_server(parts_in_turn(*parts, tag="")) as server:
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        async with opened(open_source("gs://open/x", "auto", options())) as source:
            assert await collect(source, 0, 100) == bytes(100)
            with pytest.raises(ReplicaChanged):
                await collect(source, 0, 100)


async def test_a_later_look_does_not_excuse_an_answer(monkeypatch):
    asked, looked = asyncio.Event(), asyncio.Event()

    async def serve(reader, writer):
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            if request.startswith(b"GET"):
                asked.set()
                await looked.wait()
            head = f'ETag: "{1 + asked.is_set()}"\r\nLast-Modified: {DATE}\r\n\r\n'.encode()
            if request.startswith(b"HEAD"):
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n" + head)
            else:
                place = b"Content-Length: 100\r\nContent-Range: bytes 0-99/100\r\n"
                writer.write(b"HTTP/1.1 206 Part\r\n" + place + head + bytes(100))

    async with raw_server(serve) as port:
        monkeypatch.setenv("GOOGLE_BASE_URL", f"http://127.0.0.1:{port}")
        async with opened(open_source("gs://open/x", "auto", options())) as source:
            fetching = asyncio.create_task(collect(source, 0, 100))
            await asked.wait()
            await source.recheck()
            looked.set()
            with pytest.raises(ReplicaChanged):
                await fetching


async def test_an_answer_that_is_too_long_is_not_taken_whole(monkeypatch):
    async with web_server(parts_in_turn((0, 1 << 40, DATE, bytes(1 << 20)))) as server:  # then it waits without end
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        async with opened(open_source("gs://open/x", "auto", options())) as source:
            with pytest.raises(Unsupported, match="more than the requested bytes 0-99"):
                await collect(source, 0, 100)


async def test_a_slow_server_is_read_in_parts(monkeypatch):
    monkeypatch.setattr(clouds, "BLOCK_SECONDS", 0.0)
    parts = (0, 100, DATE, CONTENT[:40]), (40, 60, DATE, CONTENT[40:100])
    async with web_server(parts_in_turn(*parts)) as server:  # after the 40 bytes, it waits without end
        monkeypatch.setenv("GOOGLE_BASE_URL", server.url)
        async with opened(open_source("gs://open/x", "auto", options())) as source:
            assert await collect(source, 0, 100) == CONTENT[:100]
        assert list(filter(None, server.all("Range"))) == ["bytes=0-99", "bytes=40-99"]


@pytest.mark.parametrize("missing", CLIENT)
async def test_an_incomplete_identity_is_refused(thief, monkeypatch, missing):
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    monkeypatch.setenv("AZURE_ENDPOINT", thief.url)
    for name in CLIENT.keys() - {missing}:
        monkeypatch.setenv(name, CLIENT[name])
    with pytest.raises(Unsupported, match=f"{missing} is not set") as caught:
        await open_source("az://open/x", "auto", options()).open()
    assert "S3cret" not in str(caught.value)
    assert not thief.heard


async def test_a_tenant_alone_is_no_credential(monkeypatch):
    monkeypatch.setenv("AZURE_TENANT_ID", "us")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    async with web_server(ranges(CONTENT)) as server:
        monkeypatch.setenv("AZURE_ENDPOINT", server.url)
        with suppress(SourceError):  # this is no real Azure
            await open_source("az://open/x", "auto", options()).open()
        assert server.all("Authorization") == [None] * len(server.heard)
        assert server.heard


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


def digest(algorithm, content):
    hashing = hasher(algorithm)
    hashing.update(content)
    return hashing.hexdigest()


@pytest.mark.parametrize("own", [False, True])
async def test_checksums_are_those_of_the_content(cloud, scheme, monkeypatch, own):
    for name, value in cloud.credentials.items() if own else ():
        monkeypatch.setenv(name, value)
    cloud.put(f"open/{KEY}", CONTENT)
    async with opened(open_source(f"{scheme}://open/{KEY}", "auto", options())) as source:
        stated = {each.algorithm: each.value for each in (await source.open()).checksums}
    assert stated.pop("md5") == digest("md5", CONTENT)
    assert stated == ({"crc32c": digest("crc32c", CONTENT)} if scheme == "gs" else {})


def test_a_download_is_compared_with_the_stated_checksum(cloud, scheme, tmp_path):
    cloud.put("open/x", CONTENT)
    done = coget([f"{scheme}://open/x", "--json", "-o", "x"], tmp_path, COGET_HISTORY=str(tmp_path / "h"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checksum"]["basis"] == "own word"


WRONG = {
    "gs": {"X_Goog_Hash": "crc32c=AAAAAA=="},
    "az": {"Content_MD5": "1B2M2Y8AsgTpgAmY7PhCfg=="},
}


@pytest.mark.parametrize("same", [True, False])
async def test_a_wrong_stated_checksum_is_not_accepted(scheme, tmp_path, same):
    """A checksum of another version is only named: the bytes are of the version that was asked for first."""
    heads = []

    def serve(heard):
        if not heard.startswith("HEAD"):
            return ranges(CONTENT)(heard).replace(b"ETag", f"Last-Modified: {DATE}\r\nETag".encode(), 1)
        heads.append(heard)
        tag = '"1"' if same or len(heads) != 2 else '"2"'
        return answer("200 OK", CONTENT, ETag=tag, Last_Modified=DATE, **WRONG[scheme])

    async with web_server(serve) as server:
        common = {CLOUDS[scheme].endpoint: server.url, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT}
        words = [f"{scheme}://open/x", "--json", "-o", "x"]
        done = await asyncio.to_thread(coget, words, tmp_path, **common, COGET_HISTORY=str(tmp_path / "h"))
    assert done.returncode == (4 if same else 0), done.stderr
    assert (tmp_path / "x").exists() is not same
    assert ("of another version" in done.stdout) is not same
