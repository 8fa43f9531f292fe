import io
import logging
import sys
import unicodedata

import pytest

from coalloc.safe_text import LONGEST, escaped, lines, one_line
from coalloc.util import streams


@pytest.mark.parametrize("category", ["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
def test_no_character_of_these_kinds_is_shown(category):
    found = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == category]
    assert found
    assert all(escaped(char).isascii() and escaped(char).startswith("\\") for char in found)


@pytest.mark.parametrize("text", ["", "a b", "2024/Größe.root", "名前", "[red]x[/red]", "c:\\x", "e\u0301"])
def test_what_is_seen_stays(text):
    assert (escaped(text), one_line(text), lines(text)) == (text, text, text)


@pytest.mark.parametrize("text", ["x" * 10**6, "\x1b" * 10**6, "\U000e0001" * LONGEST, "x" * (LONGEST + 1)])
def test_a_line_is_bounded(text):
    assert len(one_line(text)) == LONGEST
    assert one_line(text).endswith("...")


def test_a_stream_escapes_what_is_written_and_leaves_what_is_drawn():
    written = io.BytesIO()
    drawn = io.TextIOWrapper(written, "ascii")
    stream = streams.PlainStream(drawn)
    print("a\x1b[2Jb\r", file=stream)
    stream.writelines(["é\udcff\n"])
    print("\x1b[2J", end="", file=streams.drawn(stream), flush=True)
    assert written.getvalue() == b"a\\x1b[2Jb\\r\n\xc3\xa9\\udcff\n\x1b[2J"


def test_a_log_line_is_one_line():
    record = logging.LogRecord("x", logging.WARNING, "", 1, "%s", ("a\ncoget: b\x1b",), None)
    assert streams.Plainly().format(record) == r"a\ncoget: b\x1b"
