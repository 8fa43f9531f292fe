"""Servers that name further replicas by Link headers (RFC 6249): honest ones help, and lying ones do no harm."""

import asyncio
import base64
import hashlib
import random
import socket
from contextlib import AsyncExitStack

import pytest

from coalloc import api
from coalloc.model.reports import Results
from tests.support.nginx import Nginx
from tests.support.scripted import raw_server
from tests.support.served_file import ServedFile, served

CONTENT = random.Random(3).randbytes(3 << 20)
OTHER = CONTENT[:1000] + bytes(1) + CONTENT[1001:-1] + b"?"
WRONG = random.Random(4).randbytes(len(CONTENT))
DIGEST = {"Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(CONTENT).digest()).decode()}:"}
GIVEN = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


def named(*others, rel="duplicate"):
    links = (f'<{other.url}>; rel="{rel}"; pri={number}; geo=de' for number, other in enumerate(others, 1))
    return {"Link": ", ".join(links)}


def metalink(*urls, content=CONTENT, name="file.bin"):
    listed = "".join(f"<url>{url}</url>" for url in urls)
    digest = hashlib.sha256(content).hexdigest()
    return (
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="{name}">'
        f'<hash type="sha-256">{digest}</hash>{listed}</file></metalink>'
    ).encode()


class World(AsyncExitStack):
    """Servers of one test, and the folder of its download."""

    def __init__(self, folder):
        super().__init__()
        self.target = folder / "here"
        self._seen, self._awaited = asyncio.Event(), []

    async def serve(self, content=CONTENT, headers={}, redirect=""):  # noqa: B006 - never changed
        return await self.enter_async_context(served(ServedFile(content, headers, redirect)))

    async def slow(self, content=CONTENT, headers={}):  # noqa: B006 - never changed
        """Serve a file slowly until all awaited servers have sent bytes, or were refused."""
        return await self.enter_async_context(served(ServedFile(content, headers, until=self._seen)))

    async def awaited(self, content=CONTENT, headers={}):  # noqa: B006 - never changed
        """Serve a file, and let the slow servers wait until this one has sent bytes, or was refused."""
        self._awaited.append(await self.slow(content, headers))
        return self._awaited[-1]

    def watch(self, snapshot):
        """Let the slow servers go on when coget shows bytes or errors of all awaited servers."""
        shown = {source.url for source in snapshot.sources if source.bytes or source.error}
        if shown.issuperset(server.url for server in self._awaited):
            self._seen.set()

    async def fetch(self, *servers, **options):
        urls = tuple(server.url for server in servers)
        (report,) = await api.download(api.Request(urls, output=self.target, **options), self.watch)
        assert self.target.read_bytes() == CONTENT
        return {source.url: source for source in report.sources}


@pytest.fixture
async def world(tmp_path):
    async with World(tmp_path) as world:
        yield world


async def test_a_redirect_that_names_duplicates_makes_them_sources(world):
    target, *others = [await world.slow(), await world.awaited(), await world.awaited()]
    director = await world.serve(headers=named(target, *others), redirect=target.url)
    sources = await world.fetch(director)
    assert list(sources) == [director.url, others[0].url, others[1].url], "the target is in use already"
    assert all(source.bytes > 0 for source in sources.values())
    assert [source.named_by for source in sources.values()] == [None, director.url, director.url]


async def test_a_redirect_that_names_another_version_does_no_harm(world):
    """Servers state neither checksums nor tags, and the sizes are equal."""
    target, right, wrong = await world.slow(), await world.awaited(), await world.awaited(WRONG)
    director = await world.serve(headers=named(right, wrong), redirect=target.url)
    sources = await world.fetch(director)
    assert sources[wrong.url].outcome == "corrupt"
    assert sources[wrong.url].error == "its replica differs from the one that you named"
    assert sources[right.url].outcome != "corrupt"


async def test_duplicates_of_a_file_with_a_checksum_become_sources(world):
    other = await world.awaited(headers={"ETag": '"other"'})
    sources = await world.fetch(await world.slow(headers=DIGEST | named(other)))
    assert sources[other.url].bytes > 0


@pytest.mark.parametrize(("tags", "used"), [(('"1"', '"1"'), True), (('"1"', '"2"'), False), (("", ""), False)])
async def test_without_a_checksum_duplicates_must_have_the_same_strong_tag(world, tags, used):
    other = await world.awaited(headers={"ETag": tags[1]} if tags[1] else {})
    stated = {"ETag": tags[0]} if tags[0] else {}
    first = await world.slow(headers=named(other) | stated)
    sources = await world.fetch(first)
    assert (sources[other.url].bytes > 0) == used
    assert used or "no checksum of the file is known" in sources[other.url].error


@pytest.mark.parametrize("more", [DIGEST, {}], ids=["digest", "user"])
async def test_duplicates_with_wrong_bytes_do_no_harm(world, more):
    wrong = [await world.awaited(WRONG), await world.awaited(OTHER)]
    first = await world.slow(headers=more | named(*wrong))
    sources = await world.fetch(first, checksum=None if more else GIVEN)
    assert sources[wrong[0].url].outcome == "corrupt"
    assert sources[wrong[1].url].outcome in ("corrupt", "ok")  # its wrong bytes may have come from another one
    assert sources[first.url].bytes >= len(CONTENT)


@pytest.mark.parametrize(
    "lie", [{"content": CONTENT[:-1]}, {"headers": {"Digest": f"md5={'0' * 32}"}}, {"content": b""}]
)
async def test_duplicates_that_contradict_the_first_server_are_left_out(world, lie):
    md5 = {"Digest": f"md5={hashlib.md5(CONTENT).hexdigest()}"}
    other = await world.awaited(**lie)
    sources = await world.fetch(await world.slow(headers=md5 | named(other)))
    assert (sources[other.url].bytes, sources[other.url].outcome) == (0, "failed")


async def test_a_duplicate_whose_own_checksum_is_wrong_is_not_believed(world):
    other = await world.awaited(headers={"Digest": f"md5={'0' * 32}"})
    director = await world.serve(headers=named(other), redirect=(await world.slow()).url)
    sources = await world.fetch(director)
    assert sources[other.url].outcome == "corrupt"
    assert "md5 (it states 0000" in sources[other.url].error


@pytest.mark.parametrize(
    "link",
    [
        "<file:///etc/passwd>; rel=duplicate",
        "<http://169.254.169.254/x>; rel=duplicate",
        "<//[>; rel=duplicate, <>; rel=duplicate, <http://>; rel=duplicate; pri=x",
        "<http://127.0.0.1:1/x>; rel=duplicate, " * 100,
        "<" * 5000,
        '</x>; rel=duplicate; anchor="/y"',
    ],
)
async def test_links_that_lead_nowhere_do_no_harm(world, link):
    first = await world.serve(headers=DIGEST | {"Link": link})
    sources = await world.fetch(first)
    assert sources[first.url].bytes == len(CONTENT)


async def test_links_of_duplicates_are_not_followed(world):
    third = await world.serve()
    second = await world.serve(headers=named(third))
    first = await world.serve(headers=DIGEST | named(second))
    assert len(await world.fetch(first)) == 2
    assert not third.requests


async def test_no_more_sources_are_asked_than_allowed(world):
    other = await world.serve()
    first = await world.serve(headers=DIGEST | named(other))
    sources = await world.fetch(first, max_sources=1)
    assert sources[first.url].bytes == len(CONTENT)
    assert not other.requests


async def test_a_duplicate_that_does_not_answer_delays_nothing(world, monkeypatch):
    """The time limit for a late answer is longer than the test may last."""
    monkeypatch.setattr("coalloc.download.connections.ANSWER", 3600.0)
    silent = asyncio.Event()

    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await silent.wait()

    async with raw_server(serve) as port:
        link = {"Link": f"<http://127.0.0.1:{port}/x>; rel=duplicate"}
        target = await world.serve()
        director = await world.serve(headers=link, redirect=target.url)
        sources = await world.fetch(director)
    assert sources[director.url].bytes == len(CONTENT)


@pytest.mark.parametrize("options", [{"strategy": "brute"}, {"leads": None}], ids=["strategy", "leads"])
async def test_duplicates_are_left_out_where_each_server_matters(world, options):
    async def allow(url):
        return ()

    other = await world.serve()
    first = await world.serve(headers=DIGEST | named(other))
    assert len(await world.fetch(first, **{"leads": allow} if "leads" in options else options)) == 1
    assert not other.requests


async def test_sources_that_the_user_names_are_all_that_is_used(world):
    other = await world.serve()
    both = [await world.serve(headers=DIGEST | named(other)) for _ in range(2)]
    assert len(await world.fetch(*both)) == 2
    assert not other.requests


async def test_duplicates_replace_the_dead_target_of_a_redirect(world):
    other = await world.serve()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        dead = f"http://127.0.0.1:{unused.getsockname()[1]}/x"
        director = await world.serve(headers=named(other), redirect=dead)
        sources = await world.fetch(director)
    assert sources[other.url].bytes == len(CONTENT)


async def test_a_metalink_that_the_server_names_gives_hashes_and_sources(world):
    other = await world.awaited()
    described = await world.serve(metalink(other.url, "file:///etc/passwd"))
    link = {"Link": f'<{described.url}>; rel=describedby; type="application/metalink4+xml"'}
    first = await world.slow(headers=link)
    (report,) = await api.download(api.Request((first.url,), output=world.target), world.watch)
    sources = {source.url: source for source in report.sources}
    assert (report.basis, report.checksum.algorithm) == ("given", "sha256")
    assert sources[other.url].bytes > 0
    assert sources[other.url].named_by == described.url
    assert "command line only" in sources["file:///etc/passwd"].error


@pytest.mark.parametrize(
    "document",
    [b"<html>", metalink("http://127.0.0.1:1/x", content=b"x"), metalink("ftp://a/x", name="a") * 2],
)
async def test_a_metalink_that_is_malformed_or_contradicts_the_server_is_left_out(world, document):
    described = await world.serve(document)
    link = {"Link": f'<{described.url}>; rel=describedby; type="application/metalink4+xml"'}
    first = await world.serve(headers=DIGEST | link)
    sources = await world.fetch(first)
    assert sources[described.url].error.startswith("left out: ")
    assert sources[first.url].bytes == len(CONTENT)


async def test_a_reader_in_order_gets_no_bytes_that_could_not_be_taken_back(world):
    wrong = await world.serve(WRONG)
    first = await world.serve(headers=DIGEST | named(wrong))
    results = Results()
    read = b"".join([bytes(data) async for data in api.stream(api.Request((first.url,)), results=results)])
    assert read == CONTENT
    assert not wrong.requests


async def test_nginx_names_other_servers_in_a_redirect_that_it_sends(tmp_path):
    """Two servers have the file, and a third one redirects to the first, as the director of a federation does."""
    export = tmp_path / "export"
    export.mkdir()
    (export / "file.bin").write_bytes(CONTENT)
    with Nginx(export, tmp_path / "a") as first, Nginx(export, tmp_path / "b") as second:
        links = "".join(
            f"add_header Link '<{each.url('file.bin')}>; rel=\"duplicate\"; pri={number}' always;"
            for number, each in enumerate((first, second), 1)
        )
        moved = f"location / {{ return 307 {first.url('file.bin')}; }} {links}"
        with Nginx(export, tmp_path / "c", more=moved) as director:
            request = api.Request(director.url("file.bin"), output=tmp_path / "here")
            (report,) = await api.download(request)
    assert (tmp_path / "here").read_bytes() == CONTENT
    assert [source.url for source in report.sources] == [director.url("file.bin"), second.url("file.bin")]
    assert not any(source.error for source in report.sources)
