"""Link headers, as servers and attackers write them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.engine.http.links import MOST_LINKS, WebLink, links
from tests.support.effort import effort

DUPLICATE = frozenset({"duplicate"})


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("", []),
        ("<http://b/x>; rel=duplicate", [WebLink("http://b/x", DUPLICATE)]),
        (
            '<ftp://b/x,1>;rel="Duplicate";pri=1;geo="de" ,</y> ; rel=duplicate ; pri=0; geo=deu',
            [WebLink("ftp://b/x,1", DUPLICATE, "", 1, "de"), WebLink("http://a/y", DUPLICATE)],
        ),
        (
            '<x.meta4>; rel="describedby duplicate"; type="application/metalink4+xml; a=\\"1\\""; title="<x>, y"',
            [WebLink("http://a/d/x.meta4", DUPLICATE | {"describedby"}, "application/metalink4+xml")],
        ),
        ('<http://b/x>; rel=next; anchor="#1", <//c>; rel=duplicate; pri=12345678', [WebLink("http://c", DUPLICATE)]),
        ("<http://b/x>; rel=duplicate; rel=next, junk <http://c>; rel=duplicate", [WebLink("http://b/x", DUPLICATE)]),
        ("<http://[>; rel=duplicate, <http://b>; rel=duplicate", [WebLink("http://b", DUPLICATE)]),
    ],
)
def test_links(header, found):
    assert links({"link": header}, "http://a/d/e") == found


PIECES = st.sampled_from(
    ["<", ">", ";", ",", '"', "\\", "rel", "=", "duplicate", " ", "http://b/x", "//[", "\n", "\xe9"]
)


@settings(max_examples=effort(30, 1000))
@given(st.lists(PIECES, max_size=60).map("".join), st.integers(1, 20_000))
def test_any_header_is_read_quickly_and_few_links_are_found(piece, times):
    assert len(links({"link": piece * times}, "http://a/x")) <= MOST_LINKS
