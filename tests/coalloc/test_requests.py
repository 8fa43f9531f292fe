"""The Python API: a request takes what a user would write."""

import asyncio
from pathlib import Path

import pytest

from coalloc import api
from coalloc.errors import CoallocError, FilesFailed, TooMuch, UsageError
from tests.support.fetching import random_file
from tests.support.gridftp import GridFTPServer
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE
from tests.support.web import answer


@pytest.fixture
def servers(start_gridftp, tmp_path) -> list[GridFTPServer]:
    made = [start_gridftp(tmp_path / "export", host) for host in ("127.0.0.2", "127.0.0.3")]
    for seed, name in enumerate(("x.root", "y.root")):
        random_file(made[0].root / name, 300_000, seed)
    return made


def metalink_of(*urls: str) -> str:
    """Return a Metalink of several files, by their URLs."""
    entries = (f'<file name="{url.rpartition("/")[2]}"><url>{url}</url></file>' for url in urls)
    return f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{"".join(entries)}</metalink>'


@pytest.mark.parametrize(
    ("output", "name"), [("here", "here"), ("folder/", "folder/x.root"), ("folder", "folder/x.root"), (None, "x.root")]
)
async def test_an_output_may_be_a_string(servers, tmp_path, monkeypatch, output, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (report,) = await api.download(api.Request(servers[0].url("x.root"), output=output))
    assert report.output == name
    assert (tmp_path / name).read_bytes() == (servers[0].root / "x.root").read_bytes()


@pytest.mark.parametrize("several", [False, True])
async def test_a_metalink_may_be_a_path(servers, tmp_path, several):
    document = tmp_path / "x.meta4"
    document.write_text(await api.metalink(api.Request(servers[0].url("x.root"))))
    await api.download(api.Request([document] if several else document, output=tmp_path / "here"))
    assert (tmp_path / "here").read_bytes() == (servers[0].root / "x.root").read_bytes()


async def test_several_files_are_refused_before_the_first_byte_if_one_is_wanted(servers, tmp_path):
    document = tmp_path / "both.meta4"
    document.write_text(metalink_of(servers[0].url("x.root"), servers[0].url("y.root")))
    with pytest.raises(UsageError, match="names 2 files"):
        await api.download(api.Request(document, output=tmp_path / "here", one_file=True))
    assert not (tmp_path / "here").exists()
    await api.download(api.Request(document, output=tmp_path / "here"))
    assert sorted(path.name for path in (tmp_path / "here").iterdir()) == ["x.root", "y.root"]


@pytest.mark.parametrize("name", ["esgf:x", "runs", "ftp:/host/x"])
async def test_a_path_is_of_a_file_even_if_it_looks_like_another_name(name):
    with pytest.raises(CoallocError) as caught:
        await api.download(api.Request(Path(name)))
    assert f"./{name}" in caught.value.message


async def test_the_files_of_all_metalinks_of_a_list_are_counted_together(tmp_path, monkeypatch):
    monkeypatch.setattr("coalloc.api.batches.MOST_BELOW", 3)
    for name in ("a", "b"):
        (tmp_path / f"{name}.meta4").write_text(metalink_of(*(f"http://192.0.2.1/{name}{i}" for i in range(2))))
    listed = api.read_list([str(tmp_path / "a.meta4"), str(tmp_path / "b.meta4")])
    with pytest.raises(TooMuch, match="more than 3 files"):
        await api.download_list(api.Request((), output=tmp_path / "out"), listed, print)


@pytest.fixture
async def dripping():
    """The URL of a server of files called x and a page /good/ that names one; all else arrives a byte now and then."""

    async def serve(reader, writer):
        while path := (await reader.readuntil(b"\r\n\r\n")).split()[1].decode():
            if path.endswith(("/x", "/good/")):
                writer.write(
                    answer("200 OK", b"<a href=x>" if path == "/good/" else b"content", Content_Type="text/html")
                )
                continue
            writer.write(answer("200 OK", b"<html>", Content_Type="text/html", Content_Length=1_000_000))
            while True:
                await asyncio.sleep(0.02)
                writer.write(b" ")
                await writer.drain()

    async with raw_server(serve) as port:
        yield f"http://127.0.0.1:{port}"


async def test_a_metalink_that_drips_does_not_stop_the_other_lines(dripping, tmp_path, monkeypatch):
    monkeypatch.setattr("coalloc.resolve.DOCUMENT_SECONDS", 0.2)
    listed, ended = api.read_list([f"{dripping}/x", f"{dripping}/slow.meta4"]), []
    with pytest.raises(FilesFailed):
        async with asyncio.timeout(PATIENCE):
            await api.download_list(api.Request((), output=tmp_path), listed, ended.append)
    assert {each.name: each.error and each.error.code for each in ended} == {"line 2": "stalled", "x": None}


async def test_a_listing_that_drips_does_not_stop_the_other_copy(dripping, tmp_path, monkeypatch):
    monkeypatch.setattr("coalloc.engine.http.lister.LIST_SECONDS", 0.2)
    async with asyncio.timeout(PATIENCE):
        await api.download_directory(api.Request((f"{dripping}/slow/", f"{dripping}/good/"), output=tmp_path), print)
    assert (tmp_path / "x").read_bytes() == b"content"


async def test_a_list_makes_the_directory_that_a_string_names(servers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = api.read_list([servers[0].url("x.root")])
    await api.download_list(api.Request((), output="data/new/"), listed, lambda _: None)
    assert (tmp_path / "data/new/x.root").read_bytes() == (servers[0].root / "x.root").read_bytes()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"sources": [3]}, "3 is not a source"),
        ({"sources": None}, "None is not a source"),
        ({"output": b"x"}, "not a path"),
        ({"output": 7}, "not a path"),
        ({"output": ""}, "is empty"),
        ({"output": "none/"}, "not a directory"),
        ({"engine": "steam"}, "unknown engine steam"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_with_a_reason(tmp_path, wrong, says):
    with pytest.raises(UsageError, match=says):
        await api.download(api.Request(**{"sources": "ftp://127.0.0.1:9/x", **wrong}))


async def test_an_error_says_whether_it_may_pass(servers, tmp_path):
    for url, passes in ((servers[0].url("none"), False), ("ftp://127.0.0.1:9/x", True)):
        with pytest.raises(CoallocError) as caught:
            await api.download(api.Request(url, output=tmp_path / "x"))
        assert caught.value.transient == passes
