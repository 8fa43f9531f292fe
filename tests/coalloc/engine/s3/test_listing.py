"""Listings of buckets: by moto, in several answers, and by servers that answer without end or with hostile XML."""

import re

import pytest

from coalloc import api
from coalloc.engine.s3 import listing
from coalloc.engine.s3.account import _session_of
from coalloc.engine.s3.listing import S3Lister
from coalloc.errors import FilesFailed, NoSuchFile, SourceError, Unsupported
from tests.support.fetching import options
from tests.support.s3 import Moto, use_s3
from tests.support.web import answer, ranges, web_server

BOMB = '<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">]>'


def page(*keys, more="", head=""):
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    truncated = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    return f"{head}<ListBucketResult xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>{contents}{truncated}"


async def listed(url):
    return [entry async for group in S3Lister(options()).list(url) for entry in group]


async def answered(monkeypatch, reply):
    """Return the entries of a bucket whose service answers by `reply`."""
    async with web_server(reply) as server:
        use_s3(monkeypatch, server.url)
        _session_of.cache_clear()
        return [entry.name for entry in await listed("s3://runs/run/")], server.heard


async def test_a_real_bucket_is_fetched_as_a_directory(monkeypatch, tmp_path):
    content = {"a b%41+é": b"one", "deep/x#?": b"two", "deep/empty": b""}
    with Moto() as moto:
        use_s3(monkeypatch, moto.url)
        monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history"))
        _session_of.cache_clear()
        client = moto.client()
        client.create_bucket(Bucket="runs")
        for name, body in {**content, "marker/": b""}.items():
            client.put_object(Bucket="runs", Key=f"run/{name}", Body=body)
        client.put_object(Bucket="runs", Key="running", Body=b"not below")
        assert {entry.name: entry.size for entry in await listed("s3://runs/run/")} == {
            name: len(body) for name, body in content.items()
        }
        assert len(await listed("s3://runs/")) == 4
        await api.download_directory(api.Request(("s3://runs/run/",), output=tmp_path / "out"), lambda _: None)
        with pytest.raises(NoSuchFile, match="no key"):
            await listed("s3://runs/nothing/")
        with pytest.raises(NoSuchFile):
            await listed("s3://nobucket/")
    out = tmp_path / "out"
    assert {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()} == content


async def test_several_answers(monkeypatch):
    end = "</ListBucketResult>"

    def reply(heard):
        text = page("run/b") if "continuation-token=t%2F1" in heard.path else page("run/a", "elsewhere", more="t/1")
        return answer("200 OK", (text + end).encode())

    names, heard = await answered(monkeypatch, reply)
    assert names == ["a", "/elsewhere", "b"], "a key that is not below the directory is not missing in silence"
    assert all("AWS4-HMAC" in request.header("Authorization") for request in heard)


async def test_answers_without_keys_do_not_end_a_listing_unless_they_are_many(monkeypatch):
    """A service may skip over deleted objects, and say that there is more."""
    most = 5
    monkeypatch.setattr(listing, "MOST_EMPTY", most)

    def reply_of(empty):
        def reply(heard):
            at = int((re.search(r"continuation-token=(\d+)", heard.path) or [0, "0"])[1])
            text = page("run/a", more=1) if not at else page(more=at + 1) if at <= empty else page("run/b")
            return answer("200 OK", f"{text}</ListBucketResult>".encode())

        return reply

    names, heard = await answered(monkeypatch, reply_of(most))
    assert (names, len(heard)) == (["a", "b"], most + 2)
    with pytest.raises(Unsupported, match="does not end"):
        await answered(monkeypatch, reply_of(most + 1))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (page("run/a", more="again") + "</ListBucketResult>", "does not end"),
        (page("run/a"), "no element|unclosed|not well"),
        (page("run/a", head=BOMB) + "</ListBucketResult>", "document type"),
        (page("run/" + "a" * 20_000) + "</ListBucketResult>", "characters"),
        (page() + "<IsTruncated>true</IsTruncated></ListBucketResult>", "continuation"),
        ("<html></html>", "<html>"),
        ("<" * 10, "well-formed"),
        ("<ListBucketResult " + "a" * 200_000, "tag of more than"),
        (page() + "<a>" * 20, "nested"),
        ("", "no element"),
    ],
)
async def test_hostile_answers(monkeypatch, text, reason):
    with pytest.raises(SourceError, match=reason) as caught:
        await answered(monkeypatch, lambda _: answer("200 OK", text.encode()))
    assert len(str(caught.value)) < 1000


async def test_keys_are_not_sent_along_a_redirect(monkeypatch):
    async with web_server(lambda _: answer("200 OK", (page("run/a") + "</ListBucketResult>").encode())) as thief:
        with pytest.raises(SourceError):
            await answered(monkeypatch, lambda _: answer("307 Away", Location=thief.url))
    assert not thief.heard


async def test_an_unsafe_key_fails_alone(monkeypatch, tmp_path):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history"))
    found = (page("run/../../up", "run/good") + "</ListBucketResult>").encode()

    def reply(heard):
        return answer("200 OK", found) if "list-type" in heard.path else ranges(b"x")(heard)

    async with web_server(reply) as server:
        use_s3(monkeypatch, server.url)
        _session_of.cache_clear()
        with pytest.raises(FilesFailed):
            await api.download_directory(api.Request(("s3://runs/run/",), output=tmp_path / "out"), lambda _: None)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file() and "history" not in path.name] == ["good"]


async def test_only_empty_markers_of_directories_are_skipped(monkeypatch):
    def key(name, size):
        return f"<Contents><Key>run/{name}</Key><Size>{size}</Size></Contents>"

    body = f"<ListBucketResult>{key('', 0)}{key('a/', 0)}{key('b/', 9)}{key('x', 0)}</ListBucketResult>".encode()
    names, _ = await answered(monkeypatch, lambda _: answer("200 OK", body))
    assert names == ["b/", "x"]


async def test_a_marker_with_content_fails_by_its_name(monkeypatch, tmp_path):
    body = b"<ListBucketResult><Contents><Key>run/b/</Key><Size>9</Size></Contents></ListBucketResult>"
    async with web_server(lambda _: answer("200 OK", body)) as server:
        use_s3(monkeypatch, server.url)
        _session_of.cache_clear()
        results = []
        request = api.Request(("s3://runs/run/",), output=tmp_path / "out")
        with pytest.raises(FilesFailed):
            await api.download_directory(request, results.append)
    assert [result.name for result in results] == ["b/"]
    assert not list(tmp_path.glob("out/**/*"))


@pytest.mark.parametrize("before", ["", "<Key>run/y</Key>", "<Contents><Key>run/y</Key><Size>1</Size></Contents>"])
async def test_an_object_without_a_key_is_refused(monkeypatch, before):
    body = f"<ListBucketResult>{before}<Contents><Size>9</Size></Contents></ListBucketResult>".encode()
    with pytest.raises(Unsupported, match="without <Key>"):
        await answered(monkeypatch, lambda _: answer("200 OK", body))


async def test_a_size_belongs_to_its_own_object_only(monkeypatch):
    body = b"<ListBucketResult><Size>9</Size><Contents><Key>run/y</Key></Contents></ListBucketResult>"
    async with web_server(lambda _: answer("200 OK", body)) as server:
        use_s3(monkeypatch, server.url)
        _session_of.cache_clear()
        assert [entry.size for entry in await listed("s3://runs/run/")] == [None]
