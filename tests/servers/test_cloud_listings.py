"""Listings of clouds by servers that lie: every file is right or absent, and every listing ends."""

import asyncio
import os
from xml.sax.saxutils import escape

import pytest

from coalloc.engine import cloud_listing, open_lister
from coalloc.engine.clouds import CLOUDS
from coalloc.errors import SourceError, Stalled
from tests.support.clouds import ACCOUNT
from tests.support.coget import coget
from tests.support.fetching import options
from tests.support.s3 import use_s3
from tests.support.web import answer, web_server

DATE = "Fri, 27 Feb 2026 10:00:00 GMT"
CONTENT = b"content"
ALL = pytest.mark.parametrize("scheme", ["gs", "az", "s3"], indirect=True)


@pytest.fixture(params=["gs", "az"])
def scheme(request, tmp_path, monkeypatch):
    if request.param == "s3":
        use_s3(monkeypatch, "http://127.0.0.1:1")
    else:
        pytest.importorskip("obstore")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for cloud in CLOUDS.values():
        for name in (*cloud.all_credentials, cloud.endpoint, *cloud.refused):
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT)
    return request.param


def page(scheme, keys, token=""):
    """Return a page of a listing: keys and sizes."""
    if scheme in ("gs", "s3"):
        found = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{size}</Size><ETag>1</ETag>"
            "<LastModified>2026-02-27T10:00:00Z</LastModified></Contents>"
            for key, size in keys
        )
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>" if token else ""
        return f"<ListBucketResult><Name>open</Name><KeyCount>{len(keys)}</KeyCount>{found}{more}</ListBucketResult>"
    found = "".join(
        f"<Blob><Name>{escape(key)}</Name><Properties><Last-Modified>{DATE}</Last-Modified>"
        f"<Content-Length>{size}</Content-Length><Content-Type>x</Content-Type><Etag>1</Etag></Properties></Blob>"
        for key, size in keys
    )
    return f"<EnumerationResults><Blobs>{found}</Blobs><NextMarker>{token}</NextMarker></EnumerationResults>"


def cloud(scheme, keys, content=CONTENT):
    """Answer requests for a listing by these keys and sizes, and all others by an object."""

    def serve(heard):
        if "list" in heard.path:
            return answer("200 OK", page(scheme, keys).encode())
        marks = {"ETag": '"1"', "Last_Modified": DATE, "Accept_Ranges": "bytes"}
        if heard.startswith("HEAD"):
            return answer("200 OK", content, **marks)
        return answer("206 Part", content, Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}", **marks)

    return serve


async def fetched(scheme, tmp_path, *keys, command=("get", "-r")):
    """Fetch a directory with these keys; return the result, and the files that are there."""
    folder = tmp_path / "out"
    async with web_server(cloud(scheme, keys)) as server:
        endpoint = "AWS_ENDPOINT_URL" if scheme == "s3" else CLOUDS[scheme].endpoint
        common = {**os.environ, endpoint: server.url, "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT}
        words = [*command, f"{scheme}://open/run/", "-o" if "-r" in command else "--to", f"{folder}/"]
        done = await asyncio.to_thread(coget, words, tmp_path, **common, COGET_HISTORY=str(tmp_path / "h"))
    assert not [path for path in tmp_path.rglob("*evil*") if not path.is_relative_to(folder)]
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return done, {name: content for name, content in found.items() if ".coget" not in name}


HOSTILE = {
    "outside": "../evil",
    "dots": "run/../../evil",
    "absolute": "/etc/evil",
    "elsewhere": "other/evil",
    "control": "run/evil\x7f\u202ex",
    "long": f"run/evil{'é' * 200}",
    "backslash": "run/..\\evil",
}


@pytest.mark.parametrize("command", [("get", "-r"), ("collect",)])
@pytest.mark.parametrize("name", HOSTILE)
async def test_hostile_names(scheme, tmp_path, name, command):
    done, found = await fetched(scheme, tmp_path, ("run/good", 7), (HOSTILE[name], 7), command=command)
    assert done.returncode not in (0, 1), done.stderr
    assert "\x7f" not in done.stdout + done.stderr
    assert found in ({}, {"good": CONTENT})


@ALL
async def test_a_name_that_is_a_file_and_a_directory(scheme, tmp_path):
    done, found = await fetched(scheme, tmp_path, ("run/x", 7), ("run/x/y", 7), ("run/z", 7))
    assert done.returncode not in (0, 1), done.stderr
    assert found.keys() <= {"z", "x", "x/y"}
    assert all(content == CONTENT for content in found.values())


@ALL
async def test_a_wrong_size_in_a_listing_makes_no_wrong_file(scheme, tmp_path):
    _, found = await fetched(scheme, tmp_path, ("run/x", 3))
    assert found in ({}, {"x": CONTENT})


@ALL
async def test_a_name_that_comes_twice(scheme, tmp_path):
    done, found = await fetched(scheme, tmp_path, ("run/x", 7), ("run/x", 7))
    assert done.returncode == 0, done.stderr
    assert found == {"x": CONTENT}


async def test_pages_without_end_are_given_up(scheme, monkeypatch):
    monkeypatch.setattr(cloud_listing, "SECONDS", 0.5)
    async with web_server(lambda heard: answer("200 OK", page(scheme, (), "again").encode())) as server:
        monkeypatch.setenv(CLOUDS[scheme].endpoint, server.url)
        with pytest.raises(Stalled, match="named no object"):
            [entries async for entries in open_lister(f"{scheme}://open/run/", options()).list(f"{scheme}://open/run/")]
        asked = len(server.heard)
        await asyncio.sleep(0.5)
        assert len(server.heard) <= asked + 2  # those under way


@pytest.mark.parametrize("text", ["", "<x>", "not XML", '<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult>&a;'])
async def test_an_answer_that_is_no_listing(scheme, monkeypatch, text):
    async with web_server(lambda heard: answer("200 OK", text.encode())) as server:
        monkeypatch.setenv(CLOUDS[scheme].endpoint, server.url)
        with pytest.raises(SourceError):
            [entries async for entries in open_lister(f"{scheme}://open/run/", options()).list(f"{scheme}://open/run/")]
