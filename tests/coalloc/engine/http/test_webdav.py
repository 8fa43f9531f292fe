"""Files and directories of WebDAV servers: Apache, XRootD, and some that lie."""

import zlib

import pytest

from coalloc.api import download, download_directory
from coalloc.download.request import Request
from coalloc.engine.http.answers import completed
from coalloc.engine.http.multistatus import Properties
from coalloc.engine.http.webdav import WebDAVLister, listed
from coalloc.errors import (
    CoallocError,
    ConnectionLost,
    FilesFailed,
    IsDirectory,
    NoSuchFile,
    SourceError,
    Stalled,
    Unsupported,
)
from coalloc.model.checksums import Checksum
from coalloc.model.listings import Entry
from coalloc.model.replicas import Stat
from coalloc.resolve.file_names import why_unsafe
from tests.support.apache import Apache
from tests.support.fetching import options, random_file
from tests.support.listening import reserved
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.web import answer, ranges, web_server
from tests.support.xrootd import XRootD

ODD = ("a b", "100%", "%41", "#?", "&<>'\"", "ü", "a\nb", b"\xff".decode(errors="surrogateescape"))
MD5, ADLER = Checksum("md5", "0" * 32), Checksum("adler32", "03da0195")
HEADERS = "Content-Type: text/xml\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def apache(tmp_path_factory):
    place = tmp_path_factory.mktemp("apache")
    with Apache(place / "root", place / "run") as server:
        yield server


async def found_at(url):
    return [each async for group in listed(url, options(), []) for each in group]


def described(path, size, adler32=""):
    """Return an answer about a file, with a checksum as dCache states it."""
    return (
        f'<multistatus xmlns="DAV:"><response><href>{path}</href><propstat><prop>'
        f"<getcontentlength>{size}</getcontentlength>"
        f'<Checksums xmlns="http://www.dcache.org/2013/webdav">adler32={adler32}</Checksums>'
        "</prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"
    )


async def test_a_directory_of_apache_is_listed_with_its_odd_names(apache):
    folder = apache.root / "odd names"
    (folder / "sub").mkdir(parents=True)
    for name in ODD:
        (folder / name).write_bytes(b"1234567")
    entries = [each.entry for each in await found_at(apache.url("odd names"))]
    kinds = {entry.name: (entry.kind, entry.size) for entry in entries}
    assert kinds == {"sub": ("dir", None), **dict.fromkeys(ODD, ("file", 7))}
    assert {entry.modified for entry in entries} == {int((folder / name).stat().st_mtime) for name in ("sub", *ODD)}


async def test_a_large_directory_comes_in_groups(apache):
    folder = apache.root / "large"
    folder.mkdir()
    for i in range(500):
        (folder / f"{i}").touch()
    lister = WebDAVLister(options())
    groups = [{entry.name for entry in group} async for group in lister.list(apache.url("large/"))]
    assert len(groups) > 1
    assert set.union(*groups) == {str(i) for i in range(500)}


async def test_what_is_no_directory_is_said(apache, tmp_path):
    (apache.root / "file").touch()
    with pytest.raises(NoSuchFile):
        await found_at(apache.url("absent"))
    with pytest.raises(SourceError, match="400 Bad Request"):
        await found_at(apache.url("file"))
    with Nginx(tmp_path, tmp_path / "run", more="autoindex on;") as server, pytest.raises(Unsupported, match="405"):
        await found_at(server.url("", "dav"))


async def test_a_directory_is_not_taken_for_a_file(apache, tmp_path):
    (apache.root / "folder").mkdir()
    with pytest.raises(IsDirectory):
        await download(Request(apache.url("folder/"), output=tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_entries_that_are_left_out_are_not_missing_in_silence(tmp_path):
    more = f"if ($request_method = PROPFIND) {{ return 207 '{described('/other/x', 7)}'; }}"
    with Nginx(tmp_path, tmp_path / "run", more=more) as server:
        groups = [group async for group in WebDAVLister(options()).list(server.url("d/", "dav"))]
    assert groups == [[Entry("/other/x", "file")]]
    assert why_unsafe("/other/x")


async def test_a_listing_that_is_cut_off_is_an_error():
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        text = described("/d/x", 7)[:-10]
        writer.write(f"HTTP/1.1 207 Multi-Status\r\n{HEADERS}{text}".encode())
        await writer.drain()

    async with raw_server(serve) as port:
        with pytest.raises(ConnectionLost, match="ended too early"):
            await found_at(f"dav://127.0.0.1:{port}/d")


async def test_a_silent_server_is_not_waited_for(monkeypatch):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 207 Multi-Status\r\n{HEADERS}<multistatus".encode())
        await reader.read()

    monkeypatch.setattr("coalloc.engine.http.webdav.QUIET_SECONDS", 0.1)
    async with raw_server(serve) as port:
        with pytest.raises(Stalled, match="did not answer"):
            await found_at(f"dav://127.0.0.1:{port}/d")


@pytest.mark.parametrize("stated", ["right", "wrong", "of another version"])
async def test_a_checksum_among_the_properties_is_compared(tmp_path, stated):
    (tmp_path / "root").mkdir()
    content = random_file(tmp_path / "root/data.bin", 300_000)
    adler32 = f"{zlib.adler32(content) ^ (stated != 'right'):08x}"
    size = len(content) + (stated == "of another version")
    more = f"if ($request_method = PROPFIND) {{ return 207 '{described('/data.bin', size, adler32)}'; }}"
    with Nginx(tmp_path / "root", tmp_path / "run", more=more) as server:
        request = Request(server.url("data.bin", "dav"), output=tmp_path / "here")
        if stated == "wrong":
            with pytest.raises(CoallocError, match="adler32"):
                await download(request)
            assert not (tmp_path / "here").exists()
        else:
            (report,) = await download(request)
            assert (tmp_path / "here").read_bytes() == content
            assert report.basis == ("own word" if stated == "right" else "none")


@pytest.mark.parametrize(
    ("known", "checksums"),
    [
        (Properties(Entry("x", "file", 7), '"1"', (ADLER,)), {ADLER, MD5}),
        (Properties(Entry("x", "file", 7), "1", (ADLER,)), {ADLER, MD5}),
        (Properties(Entry("x", "file", None), None, (ADLER,)), {ADLER, MD5}),
        (Properties(Entry("x", "file", 7), None, (MD5._replace(value="1" * 32),)), {MD5}),
        (Properties(Entry("x", "file", 8), '"1"', (ADLER,)), {MD5}),
        (Properties(Entry("x", "file", 7), '"2"', (ADLER,)), {MD5}),
    ],
)
def test_properties_count_only_for_the_same_version(known, checksums):
    assert (
        set(completed(Stat(7, 'W/"1"', (MD5,)), known.entry.size, known.etag, known.checksums).checksums) == checksums
    )


@pytest.mark.parametrize("stated", [1_000, 999, 500, 0])
async def test_a_size_that_only_the_properties_state_must_be_right(tmp_path, stated):
    async def serve(reader, writer):
        method, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b" ")
        if method == b"PROPFIND":
            writer.write(f"HTTP/1.1 207 Multi-Status\r\n{HEADERS}{described('/x', stated)}".encode())
        elif method == b"HEAD":
            writer.write(b"HTTP/1.1 405 Not Allowed\r\nConnection: close\r\n\r\n")
        else:
            chunks = b"1f4\r\n%b\r\n" % bytes(500) * 2 + b"0\r\n\r\n"
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        await writer.drain()

    async with raw_server(serve) as port:
        request = Request(f"dav://127.0.0.1:{port}/x", output=tmp_path / "here")
        if stated == 1_000:
            await download(request)
            assert (tmp_path / "here").read_bytes() == bytes(1_000)
        else:
            with pytest.raises(CoallocError):
                await download(request)
            assert not (tmp_path / "here").exists()


async def test_a_size_that_no_answer_confirms_is_not_believed(tmp_path):
    async def serve(reader, writer):
        method, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b" ")
        if method == b"PROPFIND":
            writer.write(f"HTTP/1.1 207 Multi-Status\r\n{HEADERS}{described('/x', 500)}".encode())
        elif method == b"HEAD":
            writer.write(b"HTTP/1.1 405 Not Allowed\r\nConnection: close\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 206 OK\r\nConnection: close\r\nContent-Range: bytes 0-0/*\r\n\r\n0")
        await writer.drain()

    async with raw_server(serve) as port:
        with pytest.raises(Unsupported, match="does not state the size"):
            await download(Request(f"dav://127.0.0.1:{port}/x", output=tmp_path / "here"))


async def test_ranges_come_from_the_node_to_which_a_door_redirects(tmp_path):
    """Doors of dCache and EOS answer HEAD themselves, and redirect GET to a node, with a secret in the URL."""
    (tmp_path / "root").mkdir()
    content = random_file(tmp_path / "root/data.bin", 3_000_000)
    with Nginx(tmp_path / "root", tmp_path / "node", more="if ($arg_uuid != 'hush') { return 403; }") as node:
        door = f"if ($request_method = GET) {{ return 307 {node.url('')}$uri?uuid=hush; }}"
        with Nginx(tmp_path / "root", tmp_path / "door", more=door) as server:
            request = Request(
                server.url("data.bin", "dav"), output=tmp_path / "here", strategy="conservative", blocks=5
            )
            (report,) = await download(request)
    assert (tmp_path / "here").read_bytes() == content
    assert "hush" not in str(report)
    assert report.sources[0].ranges == 5


async def test_files_and_directories_of_xrootd(tmp_path):
    (tmp_path / "root/folder").mkdir(parents=True)
    content = random_file(tmp_path / "root/folder/a b#c", 300_000)
    with reserved("127.0.0.1") as kept:
        port = kept.getsockname()[1]
        with XRootD(tmp_path / "root", tmp_path / "run", port=port, http=True) as server:
            (found,) = await found_at(server.web_url("folder"))
            (report,) = await download(Request(server.web_url("folder/a b#c"), output=tmp_path / "here"))
    assert (found.entry.name, found.entry.kind, found.entry.size) == ("a b#c", "file", 300_000)
    assert (tmp_path / "here").read_bytes() == content
    assert (report.basis, report.checksum) == ("own word", Checksum("adler32", f"{zlib.adler32(content):08x}"))


@pytest.mark.parametrize("right", [True, False])
async def test_a_directory_is_fetched_with_the_checksums_of_its_listing(right, tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history"))
    content = b"0123456"
    value = f"{zlib.adler32(content) if right else 0:08x}"
    listing = described("/run/x", 7, value)

    def reply(heard):
        if heard.startswith("PROPFIND"):
            return answer("207 Multi", listing.encode(), Content_Type="text/xml")
        return ranges(content)(heard)

    async with web_server(reply) as server:
        request = Request((f"dav{server.url.removeprefix('http')}/run/",), output=tmp_path / "out")
        ended = []
        try:
            await download_directory(request, ended.append)
        except FilesFailed:
            assert not right
    (file,) = ended
    assert (tmp_path / "out" / "x").exists() == right
    assert file.error is None or "adler32" in str(file.error)
    if right:
        assert [request.split()[0] for request in server.heard] == ["PROPFIND", "GET"], "one request per file"
        assert file.report.basis == "own word"
