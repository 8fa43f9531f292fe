"""Resolution of names into replicas of one file, or the files of a Metalink."""

import socket

import pytest

from coalloc.errors import NoSuchFile, PermissionRefused, ServerSays, Unreachable, UsageError
from coalloc.model.replicas import Origin, Replica, ReplicaSet
from coalloc.resolve import http_documents, metalink, resolve


async def files(sources, fetch_document):
    """Return only the files found, without a broker."""
    found = await resolve(sources, fetch_document)
    assert all((each.expected, each.dataset) == ({}, None) for each in found)
    return [each.file for each in found]


DOCUMENT = b"""<metalink xmlns="urn:ietf:params:xml:ns:metalink">
<file name="x"><url>ftp://a/x</url></file></metalink>"""


def file_of(origin):
    return ReplicaSet("x", (Replica("ftp://a/x", origin=origin),), origin=origin)


FILE = file_of(Origin("document"))
KIND = "application/metalink4+xml; charset=utf-8"


async def no_engine(url: str, limit: int) -> tuple[bytes, str | None]:
    raise AssertionError(f"{url} was asked for")


async def test_urls_are_replicas_of_one_file_named_by_the_first():
    urls = ["ftp://ann:secret@a/d/x%20y", "gsiftp://b/other", "ftp://ann:secret@a/d/x%20y"]
    (file,) = await files(urls, no_engine)
    assert file == ReplicaSet("x y", (Replica(urls[0]), Replica(urls[1])))


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("ftp://ann:secret@h:port/x", "host or port"),
        ("ftp://ann:secret@h:99999/x", "host or port"),
        ("ftp://ann:secret@h:0/x", "host or port"),
        ("", "no source was given"),
        ("ftp://ann:secret@[::1/x", "host or port"),
        ("ftp://ann:secret@h/a\r\nDELE b", "control character"),
        ("://ann:secret@h/x", "scheme"),
        ("1ftp://ann:secret@h/x", "scheme"),
    ],
)
async def test_a_malformed_url_is_refused_without_its_password(url, reason):
    with pytest.raises(UsageError, match=reason) as caught:
        await files(["ftp://a/x", url], no_engine)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_empty_list_of_sources_is_refused():
    with pytest.raises(UsageError, match="no source was given"):
        await files([], no_engine)


@pytest.mark.parametrize("name", ["x.meta4", "x.metalink", "without-extension"])
async def test_a_local_metalink_is_read(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(DOCUMENT)
    assert await files([str(path)], no_engine) == [FILE]


@pytest.mark.parametrize("content", [b"", b"data" * 100, b"\0" * (metalink.MAX_BYTES + 5)])
async def test_a_local_file_that_is_no_metalink_is_refused(tmp_path, content):
    path = tmp_path / "x.dat"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.dat"):
        await files([str(path)], no_engine)


@pytest.mark.parametrize(
    ("name", "reason"), [("missing", "No such file"), (".", "Is a directory"), ("a\0b", "null byte")]
)
async def test_names_that_are_neither_url_nor_file_are_refused(tmp_path, monkeypatch, name, reason):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=reason) as caught:
        await files([name], no_engine)
    assert "ftp://host/data/x" in caught.value.remedy


@pytest.mark.parametrize("sources", [["x.meta4", "ftp://a/x"], ["ftp://a/x", "ftp://u:secret@b/x.meta4"]])
async def test_a_metalink_stands_alone(sources):
    with pytest.raises(UsageError, match="must be the only one") as caught:
        await files(sources, no_engine)
    assert "secret" not in str(caught.value)


async def test_a_metalink_at_another_scheme_comes_through_an_engine():
    asked = []

    async def engine(url: str, limit: int) -> tuple[bytes, str | None]:
        asked.append((url, limit))
        return DOCUMENT, "192.0.2.7"

    assert await files(["ftp://u:pw@a/x.META4"], engine) == [file_of(Origin("server", "192.0.2.7"))]
    assert asked == [("ftp://u:pw@a/x.META4", metalink.MAX_BYTES)]


async def test_a_metalink_by_http_is_known_by_its_name_or_by_its_type(serve):
    server = serve(
        {
            "/x.meta4?v=1": (200, "text/plain", DOCUMENT),
            "/named-by-type": (200, KIND, DOCUMENT),
            "/moved": (302, "/named-by-type", b""),
            "/x": (200, "application/octet-stream", DOCUMENT),
        }
    )
    for path in ("x.meta4?v=1", "named-by-type", "moved"):
        assert await files([f"{server}/{path}"], no_engine) == [file_of(Origin("server", "127.0.0.1"))]
    for path in ("x", "missing"):
        assert await files([f"{server}/{path}"], no_engine) == [ReplicaSet(path, (Replica(f"{server}/{path}"),))]


async def test_a_server_that_refuses_head_has_a_replica(serve):
    url = serve({"/x": (200, KIND, DOCUMENT)}, head=False) + "/x"
    assert await files([url], no_engine) == [ReplicaSet("x", (Replica(url),))]


@pytest.mark.parametrize(
    ("status", "error"), [(404, NoSuchFile), (410, NoSuchFile), (403, PermissionRefused), (500, ServerSays)]
)
async def test_unavailable_metalink_is_reported_with_its_status(serve, status, error):
    server = serve({"/x.meta4": (status, "text/html", b"no")})
    url = f"{server}/x.meta4".replace("//", "//ann:secret@")
    with pytest.raises(error, match=str(status)) as caught:
        await files([url], no_engine)
    assert "secret" not in str(caught.value)


async def test_a_metalink_at_a_closed_port():
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unreachable, match=f"127.0.0.1:{port}"):
        await files([f"http://127.0.0.1:{port}/x.meta4"], no_engine)
    url = f"http://127.0.0.1:{port}/x"
    assert await files([url], no_engine) == [ReplicaSet("x", (Replica(url),))]


@pytest.mark.parametrize("name", ["x.meta4", "x"])
async def test_a_server_that_does_not_answer_is_waited_for_once(name, monkeypatch):
    monkeypatch.setattr(http_documents, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://me:secret@127.0.0.1:{silent.getsockname()[1]}/{name}"
        with pytest.raises(Unreachable, match=r"did not answer within 0\.1 s") as caught:
            await files([url], no_engine)
    assert "secret" not in str(caught.value)


async def test_a_metalink_that_does_not_end_is_given_up(serve):
    server = serve({"/x.meta4": (200, KIND, b" " * (metalink.MAX_BYTES + 1))})
    with pytest.raises(UsageError, match="too large"):
        await files([f"{server}/x.meta4"], no_engine)


SUMMED = DOCUMENT.replace(b"<url>", b'<hash type="md5">d41d8cd98f00b204e9800998ecf8427e</hash><url>')


async def test_checksums_of_local_documents_vouch_for_a_file(tmp_path, serve):
    (tmp_path / "x.meta4").write_bytes(SUMMED)
    (tmp_path / "plain.meta4").write_bytes(DOCUMENT)
    server = serve({"/x.meta4": (200, KIND, SUMMED)})
    vouched = {}
    for source in (f"{tmp_path}/x.meta4", f"{tmp_path}/plain.meta4", f"{server}/x.meta4"):
        (file,) = await files([source], no_engine)
        vouched[source.rpartition("/")[0].partition(":")[0], source.rpartition("/")[2]] = file.vouched
    assert vouched == {
        (str(tmp_path), "x.meta4"): True,
        (str(tmp_path), "plain.meta4"): False,
        ("http", "x.meta4"): False,
    }
