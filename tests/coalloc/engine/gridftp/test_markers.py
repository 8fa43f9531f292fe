"""What a sink says of its progress, and listings, in whatever pieces they come."""

import doctest

from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.gridftp import listing, markers
from coalloc.engine.gridftp.listing import Listing
from coalloc.engine.gridftp.markers import Progress
from coalloc.engine.gridftp.protocol import Reply
from coalloc.intervals import Intervals

PAIRS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: tuple(sorted(pair))))
LISTING = b"Type=cdir; .\r\nType=dir;Size=1; a b\r\nType=file;Size=7;Modify=20240229120000; \xc3\xbc\r\nnonsense\r\n"


def test_examples():
    assert doctest.testmod(markers).failed == 0
    assert doctest.testmod(listing).failed == 0


@given(st.lists(PAIRS))
def test_each_range_is_news_once(told):
    progress, news = Progress(), Intervals()
    for pairs in told:
        words = ",".join(f"{start}-{end}" for start, end in pairs)
        for start, end in progress.hear(Reply(111, (f"Range Marker {words}",))):
            assert news.within(start, end) == []
            news.add(start, end)
    assert list(news) == list(Intervals(pair for pairs in told for pair in pairs))
    assert progress.bytes == news.total


def test_stripes_are_counted_together():
    progress = Progress()
    for stripe, count in [(0, 5), (1, 7), (0, 10)]:
        said = (f"Stripe Index: {stripe}", f"Stripe Bytes Transferred: {count}")
        assert progress.hear(Reply(112, ("Perf Marker", "Timestamp: 1.5", *said, "End."))) == []
    assert (progress.bytes, progress.told) == (17, True)


@given(st.text(), st.sampled_from([111, 112, 150]))
def test_nonsense_tells_nothing(text, code):
    progress = Progress()
    progress.hear(Reply(code, (text,)))
    assert progress.bytes >= 0


@given(st.lists(st.integers(0, len(LISTING)), max_size=6))
def test_a_listing_in_any_pieces(cuts):
    lines, found, at = Listing(), [], 0
    for cut in [*sorted(cuts), len(LISTING)]:
        found += lines.feed(LISTING[at:cut])
        at = cut
    assert [(entry.name, entry.kind, entry.size) for entry in found] == [("a b", "dir", 1), ("ü", "file", 7)]
    assert found[1].modified == 1709208000
