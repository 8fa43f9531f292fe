"""Pages with which web servers list a directory, also hostile ones."""

import pytest

from coalloc.engine.http.index_page import IndexPage, child
from coalloc.errors import LimitExceeded, Unsupported

NGINX = """<html><head><title>Index of /d/</title></head><body><h1>Index of /d/</h1><hr><pre><a href="../">../</a>
<a href="sub%20one/">sub one/</a>                                  26-Nov-2026 21:22                   -
<a href="f%3Fx">f?x</a>                                       01-Jan-2024 00:00               10000
</pre><hr></body></html>"""
APACHE = """<table><tr><th><a href="?C=N;O=D">Name</a></th><th><a href="?C=M;O=A">Last modified</a></th></tr>
<tr><td><a href="/">Parent Directory</a></td><td>&nbsp;</td></tr>
<tr><td><a href="a&amp;b.dat">a&amp;b.dat</a></td>
<td align="right">2024-01-01 00:00  </td><td align="right">1.2K</td></tr>
</table>"""
PYTHON = '<ul>\n<li><a href="a.dat">a.dat</a></li>\n<li><a href="sub/">sub/</a></li>\n</ul>'
SECONDS = 1704067200
"""2024-01-01 00:00 UTC."""


def entries(text, url="http://host/d/", step=7):
    """Return what is found in a page that arrives in small parts."""
    page = IndexPage(url)
    found = []
    for start in range(0, len(text), step):
        page.feed_text(text[start : start + step])
        found += page.take()
    return [(each.name, each.kind, each.size, each.modified) for each in found + page.end()]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (NGINX, [("sub one", "dir", None, 1795728120), ("f?x", "file", 10000, SECONDS)]),
        (APACHE, [("a&b.dat", "file", None, SECONDS)]),
        (PYTHON, [("a.dat", "file", None, None), ("sub", "dir", None, None)]),
    ],
    ids=["nginx", "apache", "python"],
)
def test_files_and_directories_are_found_with_what_is_stated_exactly(text, found):
    assert entries(text) == found


@pytest.mark.parametrize(
    "link",
    [
        "../x",
        "./",
        ".",
        "..",
        "%2e%2e/",
        "..%2fx",
        "a/b",
        "a%2Fb",
        "/x",
        "/d",
        "/dd/x",
        "//other/d/x",
        "http://other/d/x",
        "https://host/d/x",
        "http://host:81/d/x",
        "http://[/d/x",
        "?C=M;O=A",
        "x?y",
        "#top",
        "",
        "javascript:x",
        "file:///etc/passwd",
        "x" * 9000,
    ],
)
def test_links_that_lead_elsewhere_are_ignored(link):
    assert child("http://host/d/", link) is None


def test_links_to_children_may_be_absolute_and_other_tags_are_ignored():
    page = '<base href="http://evil/"><img src="x"><a>y</a><a href=" /d/z ">z</a><a href="http://host/d/w/">w</a>'
    assert [each[0] for each in entries(page + page)] == ["z", "w"]


def test_what_the_parser_refuses_is_an_error_of_the_server():
    with pytest.raises(Unsupported, match="no valid HTML"):
        IndexPage("http://host/d/").feed_text("<![<![")


@pytest.mark.parametrize("endless", ["<!-- ", '<a href="', "<script>"])
def test_a_tag_without_end_takes_no_memory(endless):
    page = IndexPage("http://host/d/")
    with pytest.raises(LimitExceeded):
        [page.feed_text(endless + 1000 * "<x") for _ in range(1000)]
    assert len(page.rawdata) < 1 << 20
