"""Foreign text as it may be shown, and URLs as people may see them."""

import io
import logging
import sys
import unicodedata

import pytest

from coalloc import safe_text
from coalloc.errors import CoallocError
from coalloc.safe_text import LONGEST_LINE, escaped, lines, one_line
from coalloc.util import streams
from tests.support.effort import effort


@pytest.mark.long
@pytest.mark.parametrize("category", ["Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"])
def test_no_character_of_these_kinds_is_shown(category):
    found = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) == category]
    assert found
    found = found[:: 1 + len(found) // effort(2000, len(found))]
    assert all(escaped(char).isascii() and escaped(char).startswith("\\") for char in found)


@pytest.mark.parametrize("text", ["", "a b", "2024/Größe.root", "名前", "[red]x[/red]", "c:\\x", "e\u0301"])
def test_printable_text_is_unchanged(text):
    assert (escaped(text), one_line(text), lines(text)) == (text, text, text)


@pytest.mark.parametrize("text", ["x" * 10**6, "\x1b" * 10**6, "\U000e0001" * LONGEST_LINE, "x" * (LONGEST_LINE + 1)])
def test_a_line_is_bounded(text):
    assert len(one_line(text)) == LONGEST_LINE
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


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("ftp://host/a@b:c", "ftp://host/a@b:c"),
        ("ftp://ann@host/x", "ftp://ann@host/x"),
        ("ftp://ann:p@ss@[::1]:21/x", "ftp://ann@[::1]:21/x"),
        ("ftp://a:secret@[::1/x", "ftp://[::1/x"),
        ("https://token@host/x", "https://host/x"),
        ("HTTPS://ann:secret@host:1/x?y", "https://host:1/x?..."),
        ("", ""),
    ],
)
def test_no_password_is_shown(url, shown):
    assert safe_text.redact(url) == shown


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/x?X-Amz-Signature=k3y", "https://h/x?..."),
        ("HTTPS://h/x?k3y", "https://h/x?..."),
        ("http://h?k3y", "http://h?..."),
        ("http://h/x#k3y", "http://h/x"),
        ("http://h/x#a?k3y", "http://h/x"),
        ("http://h/x?a#k3y", "http://h/x?..."),
        ("http://h/x?a=b c'd\"k3y<", "http://h/x?..."),
        ("http://[::1]:8/x?k3y", "http://[::1]:8/x?..."),
        ("http://u:k3y/x@h/y", "http://h/y"),
        ("http://u:k3y?x@h/y", "http://h/y"),
        ("s3://bucket/x?versionId=k3y", "s3://bucket/x?..."),
        ("gsiftp://ann:k3y@h/x?k3y", "gsiftp://ann@h/x?..."),
        ("http://h/a%3Fb", "http://h/a%3Fb"),
        ("file:///data/a?b#c", "file:///data/a?b#c"),
        ("FILE:///data/a?b#c", "FILE:///data/a?b#c"),
    ],
)
def test_no_query_is_shown(url, shown):
    assert safe_text.redact(url).lower() == shown.lower()
    assert safe_text.redact(safe_text.redact(url)) == safe_text.redact(url)
    assert one_line(f"{safe_text.redact(url)}: x") == f"{safe_text.redact(url)}: x" or "file" in shown.lower()
    assert safe_text.without_query(url) == safe_text.redact(url).removesuffix("?...")


@pytest.mark.parametrize(
    "text",
    [
        "GET /x?sig=k3yk3y HTTP/1.1",
        "see <a href='https://h/x?k3yk3y'>",
        'said "http://h/x?a=1&sig=k3yk3y"',
        "(https://k3yk3y@h/x), then",
        "led to //h/x?sig=k3yk3y.",
        "led to //ann:k3yk3y@h/x",
        "h/x?X-Goog-Signature=k3yk3y",
        "next=https%3A%2F%2Fh%2Fx%3Fsig%3Dk3yk3y",
        "https%253A%252F%252Fh%252Fx%253Fsig%253Dk3yk3y",
        "HTTPS%3a%2f%2fann%3ak3yk3y%40h%2fx",
        "Authorization: Basic k3yk3y",
        "{'authorization': 'Bearer k3yk3y', 'x': 1}",
        "Set-Cookie: a=k3yk3y; Path=/",
        "bearer k3yk3y.k3yk3y",
        "the sig=k3yk3y&x=1 is old",
        "X-Amz-Security-Token=k3yk3y",
        "bad access_token=k3yk3y",
        "AWSAccessKeyId=1&Signature=k3yk3y",
    ],
)
def test_urls_in_text_lose_their_keys(text):
    assert "k3y" not in one_line(text)
    assert one_line(one_line(text)) == one_line(text)
    assert "k3y" not in str(CoallocError("x", text, [text])) + CoallocError(text, text).remedy


@pytest.mark.parametrize(
    "text",
    [
        "log in: https://USER:PASSWORD@HOST/...",
        "write SCHEME://HOST[:PORT]/PATH, like ftp://host/data/x",
        "what? yes, see https://example.org/docs.",
        "use sqlite:///PATH or postgresql+psycopg://USER@HOST/NAME",
        "100 % of 3 files: a, b",
        "the token for broker.example: 2 left",
    ],
)
def test_other_text_stays(text):
    assert one_line(text) == text


@pytest.mark.parametrize("repeated", ["k/3 y+", "k%2F3%20y%2B", "k%2f3%20y%2b", "k/3%20y%2B", "k%2F3+y%2B"])
@pytest.mark.parametrize(
    "url",
    [
        "http://h/x?k%2F3%20y%2B",
        "http://h/x?a=1&sig=k%2F3%20y%2B&b=2",
        "http://h/x?a=1;sig=k/3+y%2B",
        "http://h/x#sig=k%2F3%20y%2B",
        "ftp://ann:k%2F3%20y%2B@h/x",
    ],
)
def test_secrets_repeated_by_a_server_are_hidden(url, repeated):
    assert safe_text.hide(f"no {repeated}: <{repeated}>", url) == "no ...: <...>"


@pytest.mark.parametrize("repeated", [64, 65, 100, 4095, 5000])
def test_a_part_of_a_long_secret_is_hidden_to_its_end(repeated):
    secret = "".join(f"{i:04x}" for i in range(1250))
    assert safe_text.hide(f"no {secret[:repeated]} here", f"https://h/x?sig={secret}") == "no ... here"


def test_hostile_text_is_looked_through_at_once():
    """Had any pattern to go back, this would take minutes."""
    for piece in ("?", "a", "token", "http://", "%3A%2F", "x?:", "//@", "bearer ", "cookie:", "=-."):
        assert len(one_line(piece * 10**6)) <= LONGEST_LINE
