"""Progress markers of a sink, and listings, split at any bytes."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.gridftp import machine_listing, markers
from coalloc.engine.gridftp.machine_listing import Listing
from coalloc.engine.gridftp.markers import Progress
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import ConnectionLost, LimitExceeded
from coalloc.util.intervals import Intervals
from tests.support.scripted import limited

PAIRS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)).map(lambda pair: tuple(sorted(pair))))
LISTING = b"Type=cdir; .\r\nType=dir;Size=1; a b\r\nType=file;Size=7;Modify=20240229120000; \xc3\xbc\r\nnonsense\r\n"


@given(st.lists(PAIRS))
def test_each_range_is_news_once(reported):
    progress, news = Progress(), Intervals()
    for pairs in reported:
        words = ",".join(f"{start}-{end}" for start, end in pairs)
        for start, end in progress.hear(Reply(111, (f"Range Marker {words}",))):
            assert news.within(start, end) == []
            news.add(start, end)
    assert list(news) == list(Intervals(pair for pairs in reported for pair in pairs))
    assert progress.bytes == news.total


def test_stripes_are_counted_together():
    progress = Progress()
    for stripe, count in [(0, 5), (1, 7), (0, 10)]:
        fields = (f"Stripe Index: {stripe}", f"Stripe Bytes Transferred: {count}")
        assert progress.hear(Reply(112, ("Perf Marker", "Timestamp: 1.5", *fields, "End."))) == []
    assert (progress.bytes, progress.reported) == (17, True)


@given(st.text(), st.sampled_from([111, 112, 150]))
def test_arbitrary_markers_give_no_negative_progress(text, code):
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


@pytest.mark.parametrize(
    ("text", "entries", "omitted"),
    [
        ("Type=cdir;X.count=5; .\nType=pdir; ..\nType=file; a\n", ["a"], [("hidden", 2)]),
        ("Type=cdir;X.count=3; .\nType=pdir; ..\nType=file; a\n", ["a"], []),
        ("Type=cdir;X.count=1; .\nType=file; a\n", ["a"], []),  # some arrived meanwhile
        ("Type=cdir;X.count=-7; .\nType=file; a\n", ["a"], []),
        ("Type=cdir; .\nType=file; a\n\n\r\n", ["a"], []),
        ("Type=dir; .\nType=dir; ..\nType=file; a\n", ["a"], []),
        ("Type=file; new\nline\n", ["new"], [("nameless", 1)]),
        ("Type=file; .\nType=file; ..\nType=file; \nType=file;\n", [], [("nameless", 4)]),
        ("Type=file; /d/a\nType=file; /d/b\nType=file; /etc/c\n", ["a", "b"], [("nameless", 1)]),
        ("Type=file; ../a\nType=file; b/c\n", [], [("nameless", 2)]),
        ("Type=file; /d/..\nType=file; /d/\n", [], [("nameless", 2)]),
        ("Type=cdir;X.count=4; /d\nType=pdir; /\nType=file; /d/a\n", ["a"], [("hidden", 1)]),
    ],
)
def test_listing_reports_omitted_entries(text, entries, omitted):
    lines = Listing()
    assert [entry.name for entry in lines.feed(text.encode())] == entries
    assert [(each.kind, each.entries) for each in lines.close()] == omitted


@pytest.mark.parametrize("data", [b"Type=file; a", b"Type=file; a\r\nType=file; b", b"Type=cdir; .\r\nT"])
def test_a_listing_that_ends_within_a_line_is_lost(data):
    lines = Listing()
    lines.feed(data)
    with pytest.raises(ConnectionLost):
        lines.close()


NAMELESS = """
from coalloc.engine.gridftp.machine_listing import Listing

lines, piece = Listing(), 100 * (b"\\x1b" * 1000 + b"\\n")
for _ in range(600):
    lines.feed(piece)
print(lines.close()[0].entries)
"""


async def test_lines_without_names_take_no_memory_and_no_time():
    assert await limited(NAMELESS, memory=200 << 20, seconds=20) == "60000\n"


def test_lines_without_names_without_end_are_too_much(monkeypatch):
    monkeypatch.setattr(machine_listing, "MOST_ENTRIES", 100)
    lines = Listing()
    with pytest.raises(LimitExceeded):
        [lines.feed(b"nothing\r\n") for _ in itertools.count()]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (111, "1" * 60_000),
        (111, "Range Marker " + "1" * 60_000 + "-2"),
        (111, "Range Marker 1-" + "9" * 4301),
        (111, "Range Marker 0-１０"),
        (112, "Stripe Bytes Transferred: " + "9" * 4301),
        (112, " " * 60_000),
        (112, "Stripe Bytes Transferred: " + " " * 60_000),
    ],
)
def test_markers_with_invalid_numbers_are_ignored(code, line):
    progress = Progress()
    assert progress.hear(Reply(code, ("Perf Marker", *[line] * 10))) == []
    assert not progress.reported


def test_markers_without_end_are_too_much(monkeypatch):
    monkeypatch.setattr(markers, "MOST_GAPS", 10)
    monkeypatch.setattr(markers, "MOST_STRIPES", 10)
    ranges, stripes = Progress(), Progress()
    with pytest.raises(LimitExceeded, match="ranges"):
        ranges.hear(Reply(111, (",".join(f"{at}-{at + 1}" for at in range(0, 40, 2)),)))
    for index in range(10):
        stripes.hear(Reply(112, (f"Stripe Index: {index}", "Stripe Bytes Transferred: 1")))
    with pytest.raises(LimitExceeded, match="stripes"):
        stripes.hear(Reply(112, ("Stripe Index: 10", "Stripe Bytes Transferred: 1")))


NUMBERS = ["9" * 4301, "-5", "１２", "²", "1e3", str(2**63), ""]


@pytest.mark.parametrize("number", NUMBERS)
def test_sizes_and_times_of_a_listing_that_are_none(number):
    (found,) = Listing().feed(f"Type=file;Size={number};Modify={number}; a\r\n".encode())
    assert (found.size, found.modified) == (None, None)


@pytest.mark.parametrize(("limit", "most"), [("MOST_ENTRIES", 100), ("MOST_LISTED", 5_000)])
def test_a_listing_that_does_not_end_is_too_much(monkeypatch, limit, most):
    monkeypatch.setattr(machine_listing, limit, most)
    lines = Listing()
    with pytest.raises(LimitExceeded, match="more than"):
        [lines.feed(b"Type=file;Size=1; name-%d\r\n" % number) for number in itertools.count()]


def test_a_listing_of_the_directory_alone_ends_too(monkeypatch):
    monkeypatch.setattr(machine_listing, "MOST_LISTED", 5_000)
    lines = Listing()
    with pytest.raises(LimitExceeded):
        [lines.feed(b"Type=cdir; .\r\n") for _ in itertools.count()]
