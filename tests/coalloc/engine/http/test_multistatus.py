"""Answers of WebDAV servers as they are written, and as an attacker would write them."""

import pytest

from coalloc.engine.http import multistatus
from coalloc.engine.http.multistatus import MAX_NAMESPACE, MAX_RESPONSE, Multistatus, Properties
from coalloc.engine.listing_xml import MAX_TAG
from coalloc.errors import ConnectionLost, LimitExceeded, Unsupported
from coalloc.model.checksums import Checksum
from coalloc.model.listings import Entry, Omission

OK = "<status>HTTP/1.1 200 OK</status>"


def response(href, prop="<getcontentlength>7</getcontentlength>", status=OK):
    return f"<response><href>{href}</href><propstat><prop>{prop}</prop>{status}</propstat></response>"


def answer(*responses, more=""):
    return f'<multistatus xmlns="DAV:"{more}>{"".join(responses)}</multistatus>'.encode()


def read(document, url="https://host/data/", size=1 << 30):
    """Return the entries of a document that comes in pieces of this size, and what was left out."""
    parser = Multistatus(url, "SERVER")
    pieces = [document[start : start + size] for start in range(0, len(document), size)]
    entries = [each for piece in pieces for each in parser.feed(piece)]
    return entries, parser.close(), parser.itself


def names(*responses, url="https://host/data/"):
    entries, left_out, _ = read(answer(*responses), url)
    return [each.entry.name for each in entries], sum(each.entries for each in left_out)


def test_the_answer_of_apache_is_read_in_pieces_of_any_size():
    document = b"""<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns0="DAV:">
<D:response xmlns:lp1="DAV:" xmlns:lp2="http://apache.org/dav/props/">
<D:href>/data/</D:href><D:propstat><D:prop>
<lp1:resourcetype><D:collection/></lp1:resourcetype>
<lp1:getlastmodified>Thu, 26 Nov 2026 21:40:40 GMT</lp1:getlastmodified><lp2:executable>F</lp2:executable>
</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>
<D:response xmlns:lp1="DAV:"><D:href>/data/run%201&amp;2.root</D:href><D:propstat><D:prop>
<lp1:resourcetype/><lp1:getcontentlength>12</lp1:getcontentlength><lp1:getetag>"c-1"</lp1:getetag>
<lp1:getlastmodified>Thu, 26 Nov 2026 21:40:40 GMT</lp1:getlastmodified>
</D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat><D:propstat><D:prop>
<checksums xmlns="http://owncloud.org/ns"/></D:prop><D:status>HTTP/1.1 404 Not Found</D:status></D:propstat>
</D:response></D:multistatus>"""
    file = Properties(Entry("run 1&2.root", "file", 12, 1795729240), '"c-1"')
    itself = Properties(Entry("data", "dir", None, 1795729240))
    for size in (1, 7, 1 << 30):
        assert read(document, size=size) == ([file], [], itself)


@pytest.mark.parametrize(
    ("prop", "expected"),
    [
        ('<d:Checksums xmlns:d="http://www.dcache.org/2013/webdav">md5=CY9rzUYh03PK3k6DJie09g==,adler32=03DA0195', 2),
        ('<o:checksums xmlns:o="http://owncloud.org/ns"><o:checksum>SHA1:x ADLER32:03da0195</o:checksum>', 1),
        (
            '<o:checksums xmlns:o="http://owncloud.org/ns"><o:checksum>ADLER32:03da0195</o:checksum>'
            "<o:checksum>MD5:098f6bcd4621d373cade4e832627b4f6</o:checksum>",
            2,
        ),
    ],
    ids=["dcache", "owncloud", "several"],
)
def test_checksums_are_read_as_servers_write_them(prop, expected):
    closing = f"</{prop[1:].partition(' ')[0]}>"
    ((found,), _, _) = read(answer(response("/data/x", prop + closing)))
    known = [Checksum("adler32", "03da0195"), Checksum("md5", "098f6bcd4621d373cade4e832627b4f6")]
    assert sorted(found.checksums) == known[:expected]


def test_properties_that_a_server_does_not_have_are_not_read():
    missing = response("/data/x", status="<status>HTTP/1.1 404 Not Found</status>")
    gone = "<response><href>/data/y</href><status>HTTP/1.1 403 Forbidden</status></response>"
    assert names(missing, gone) == ([], 2)


@pytest.mark.parametrize(
    "href",
    [
        "/data/../etc/passwd",
        "/data/..",
        "/data/%2e%2e",
        "/data/.",
        "/data/a/../../x",
        "/data/sub/x",
        "/data/a%2Fb",
        "/data/%2Fetc%2Fpasswd",
        "/data/a%00b",
        "/other/x",
        "/x",
        "/",
        "",
        "x",
        "../x",
        "//evil.example/data/x",
        "https://evil.example/data/x",
        "https://host@evil.example/data/x",
        "https://[::1/data/x",
        "file:///data/x",
    ],
)
def test_entries_outside_the_directory_are_left_out_and_counted(href):
    assert names(response(href), response("/data/ok")) == (["ok"], 1)


@pytest.mark.parametrize(
    ("href", "name"),
    [
        ("https://HOST/data/x", "x"),
        ("http://host:8080/data/x", "x"),
        ("//data//x/", "x"),
        ("/d%61ta/%78", "x"),
        ("/data/a b#c?d", "a b#c?d"),
        ("/data/100%.txt", "100%.txt"),
        ("/data/%ff", "\udcff"),
        ("/data/a%0Ab", "a\nb"),
        ("\n  /data/x\n", "x"),
    ],
)
def test_names_are_decoded_once(href, name):
    assert names(response(href)) == ([name], 0)


def test_a_name_that_comes_twice_counts_once():
    directory = response("/data/x/", "<resourcetype><collection/></resourcetype>")
    assert names(response("/data/x"), response("/data/%78"), directory) == (["x"], 2)


def test_paths_are_compared_with_the_one_that_was_asked_for():
    assert names(response("/x"), response("/"), url="https://host") == (["x"], 0)
    assert names(response("/a%20b/x"), url="https://host/a b/") == (["x"], 0)


def test_what_was_left_out_has_an_example_that_is_safe_to_print():
    _, left_out, _ = read(answer(response("/evil\u202e"), response("/more")))
    assert left_out == [Omission("nameless", 2, "/evil\\u202e")]


def test_a_size_that_is_no_number_is_unknown():
    ((found,), _, _) = read(answer(response("/data/x", "<getcontentlength>-1</getcontentlength>")))
    assert found.entry.size is None


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<html><body>nothing</body></html>",
        b'<!DOCTYPE x [<!ENTITY a "aaaaaaaa">]>' + answer(response("/data/&a;")),
        b'<?xml version="1.0" encoding="nothing"?>' + answer(),
        answer(more=f' xmlns:x="{"n" * (MAX_NAMESPACE + 1)}"'),
        answer(more=f' x="{"n" * 2 * MAX_TAG}"'),
        answer(response("/data/" + "x" * MAX_RESPONSE)),
        answer(response("/data/x", "<getetag>1234567</getetag>" * (MAX_RESPONSE // 7 + 1))),
    ],
    ids=["empty", "html", "entities", "encoding", "namespace", "tag", "href", "texts"],
)
def test_other_documents_are_refused(document):
    with pytest.raises(Unsupported, match="SERVER: the answer is not one of WebDAV"):
        read(document, size=65_536)


@pytest.mark.parametrize("cut", [1, 20])
def test_an_answer_that_ends_too_early_is_an_error(cut):
    with pytest.raises(ConnectionLost, match="SERVER: the listing ended too early"):
        read(answer(response("/data/x"))[:-cut])


@pytest.mark.parametrize(("limit", "most"), [("MOST_ENTRIES", 10), ("MOST_LISTED", 1_000)])
def test_listings_are_limited(monkeypatch, limit, most):
    monkeypatch.setattr(multistatus, limit, most)
    with pytest.raises(LimitExceeded, match=f"more than {most} "):
        read(answer(*(response(f"/evil/{i}") for i in range(11))), size=100)
