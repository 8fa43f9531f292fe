"""Small files of web servers: few connections, and whatever is unusual is left to the usual way."""

import re
import zlib
from pathlib import Path

import pytest

from coalloc.credentials import Credentials
from coalloc.download import small_files
from coalloc.download.small_files import SmallFiles
from coalloc.download.to_disk import DownloadSettings
from coalloc.errors import TargetInUse
from coalloc.model.checksums import Checksum
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.partial_file import PartialFile
from coalloc.schedule.policies import make
from tests.support.fetching import CountingDialer, options
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.web import answer, ranges, web_server

PROPERTIES = (
    '<multistatus xmlns="DAV:"><response><href>{}</href><propstat><prop><getcontentlength>3</getcontentlength>'
    '<Checksums xmlns="http://www.dcache.org/2013/webdav">adler32={}</Checksums>'
    "</prop><status>HTTP/1.1 200 OK</status></propstat></response></multistatus>"
)
SETTINGS = DownloadSettings(make("adaptive", None))


@pytest.fixture
def web(tmp_path):
    with Nginx(tmp_path / "www", tmp_path / "run") as server:
        for number in range(5):
            (server.root / f"{number}").write_bytes(b"%d" % number * 1000)
        (server.root / "large").write_bytes(bytes(small_files.MOST + 1))
        (server.root / "largest").write_bytes(bytes(small_files.MOST))
        yield server


@pytest.fixture
async def small(monkeypatch):
    monkeypatch.setenv("COGET_CONNECTIONS", "off")
    files = SmallFiles()
    yield files
    files.close()


def described(url, **properties):
    return ReplicaSet("x", (Replica(url),), **properties)


async def test_files_of_one_server_come_over_one_connection(web, small, tmp_path):
    dialer = CountingDialer()
    for number in range(5):
        done = await small.fetch(described(web.url(f"{number}")), options(dialer=dialer), tmp_path / "x", SETTINGS)
        assert (done.report.size, done.report.basis, done.version.size) == (1000, "none", 1000)
        assert (tmp_path / "x").read_bytes() == b"%d" % number * 1000
        (tmp_path / "x").unlink()
    assert len(dialer.dialled) == 1
    assert not list(tmp_path.glob("x.coget"))


async def test_files_over_tls_come_over_one_connection_as_long_as_the_certificate_is_the_same(
    small, tmp_path, grid, monkeypatch
):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    alice, common = grid.user("Small"), options(dialer=(dialer := CountingDialer()), credentials=Credentials())
    async with web_server(ranges(b"abc"), grid) as server:

        async def fetch(name):
            file = described(f"{server.url}/{name}")
            return await small.fetch(file, common, tmp_path / name, SETTINGS)

        for name in "abcd":
            assert await fetch(name)
            assert (tmp_path / name).read_bytes() == b"abc"
        assert len(dialer.dialled) == 1
        monkeypatch.setenv("X509_USER_CERT", str(alice.certificate))
        monkeypatch.setenv("X509_USER_KEY", str(alice.key))
        assert await fetch("e")
        assert len(dialer.dialled) == 2, "a connection of another identity is not used"


async def test_files_of_webdav_come_over_one_connection_and_have_the_checksums_of_their_properties(small, tmp_path):
    asked, said = [], {"x": "00000001", "y": f"{zlib.adler32(b'abc'):08x}"}

    def reply(heard):
        method, path = re.search(r"(PROPFIND|GET) (\S+) HTTP", heard).groups()  # after the body of the last request
        asked.append(method)
        if method == "PROPFIND":
            return answer("207 Multi-Status", PROPERTIES.format(path, said[path[1:]]).encode())
        return answer("200 OK", b"abc")

    dialer = CountingDialer()
    async with web_server(reply) as server:
        url = server.url.replace("http://", "dav://")
        common = options(dialer=dialer, credentials=Credentials())
        for _ in range(2):
            done = await small.fetch(described(f"{url}/y"), common, tmp_path / "y", SETTINGS)
            assert done.report.basis == "own word"
            assert (tmp_path / "y").read_bytes() == b"abc"
            (tmp_path / "y").unlink()
        assert asked == ["PROPFIND", "GET"] * 2
        assert len(dialer.dialled) == 1
        assert await small.fetch(described(f"{url}/x"), options(), tmp_path / "x", SETTINGS) is None, "wrong bytes"
    assert not list(tmp_path.iterdir())


async def test_a_file_of_the_largest_size_is_small_and_larger_ones_are_soon_not_tried(web, small, tmp_path):
    assert await small.fetch(described(web.url("largest")), options(), tmp_path / "x", SETTINGS)
    dialer = CountingDialer()
    for _ in range(small_files.LARGE + 5):
        file = described(web.url("large"))
        assert await small.fetch(file, options(dialer=dialer), tmp_path / "y", SETTINGS) is None
    assert len(dialer.dialled) <= small_files.LARGE
    assert not (tmp_path / "y").exists()


@pytest.mark.parametrize(
    "properties",
    [
        {"checksums": (Checksum("adler32", "00000001"),)},
        {"size": 999},
        {"replicas": (Replica("http://a/x"), Replica("http://b/x"))},
    ],
    ids=["checksum", "size", "replicas"],
)
async def test_what_contradicts_the_description_is_left_to_the_usual_way(web, small, tmp_path, properties):
    file = described(web.url("1"))._replace(**properties)
    assert await small.fetch(file, options(), tmp_path / "x", SETTINGS) is None
    assert not list(tmp_path.glob("x*"))


async def test_existing_files_and_partial_data_are_left_to_the_usual_way(web, small, tmp_path):
    (tmp_path / "x").write_text("mine")
    assert await small.fetch(described(web.url("1")), options(), tmp_path / "x", SETTINGS) is None
    (tmp_path / "y.coget").mkdir()
    assert await small.fetch(described(web.url("1")), options(), tmp_path / "y", SETTINGS) is None
    assert (tmp_path / "x").read_text() == "mine"
    assert not (tmp_path / "y").exists()


async def test_an_existing_file_is_whole_only_if_it_is_known_to_be_the_version_of_now(web, small, tmp_path):
    (tmp_path / "x").write_text("mine")
    seen = []
    for whole in (True, False):
        known = SETTINGS._replace(is_whole=lambda versions, whole=whole: seen.append(versions) or whole)
        done = await small.fetch(described(web.url("1")), options(), tmp_path / "x", known)
        assert (done is not None) == whole
    assert done is None
    assert seen[0] == seen[1]
    assert seen[0][web.url("1")].size == 1000


HEAD = b"HTTP/1.1 206 Partial Content\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        HEAD + b"Content-Length: 3\r\nContent-Range: bytes 0-2/9\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nContent-Range: bytes 1-3/4\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nContent-Range: bytes 0-2/*\r\n\r\nabc",
        HEAD + b"Content-Length: 3\r\nContent-Range: bytes 0-3/4\r\n\r\nabcd",
        HEAD + b"Content-Length: 3\r\n\r\nabc",
        PLAIN + b"\r\nabc",
        PLAIN + b"Content-Length: 4\r\n\r\nabc",
        PLAIN + b"Content-Length: 3\r\nContent-Encoding: gzip\r\n\r\nabc",
        PLAIN + b"Content-Length: 3\r\nDigest: adler32=00000001\r\n\r\nabc",
        PLAIN + b"Content-Length: -3\r\n\r\nabc",
        b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n",
        b"220 an FTP server\r\n",
        b"",
    ],
)
async def test_answers_that_are_not_exactly_the_file_are_left_to_the_usual_way(small, tmp_path, answer):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    async with raw_server(serve) as port:
        file = described(f"http://127.0.0.1:{port}/x")
        assert await small.fetch(file, options(), tmp_path / "x", SETTINGS) is None
    assert not list(tmp_path.glob("x*"))


async def test_a_target_of_another_process_is_refused(web, small, tmp_path, monkeypatch):
    monkeypatch.setattr(small_files, "_is_begun", lambda where: False)
    with PartialFile(Path(tmp_path / "x")), pytest.raises(TargetInUse):
        await small.fetch(described(web.url("1")), options(), tmp_path / "x", SETTINGS)
