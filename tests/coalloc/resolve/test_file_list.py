"""Lists of files to fetch."""

import pytest

from coalloc.errors import TooMuch, UsageError
from coalloc.model.checksums import Checksum
from coalloc.resolve import file_list
from coalloc.resolve.file_list import ListedFile, read


def test_alternatives_are_separated_by_blanks_or_tabs_and_options_are_indented():
    lines = [
        "# a comment\n",
        "\n",
        "ftp://a/x http://b/x\r\n",
        "  out=2024/x y\n",
        "\tchecksum=sha-1=" + 40 * "A" + "\n",
        "  # about the next one\n",
        "file with blanks.meta4\t\n",
        "ftp://a/y b\tftp://b/y b",
    ]
    assert read(lines) == [
        ListedFile(("ftp://a/x", "http://b/x"), 3, "2024/x y", Checksum("sha1", 40 * "a")),
        ListedFile(("file", "with", "blanks.meta4"), 7),
        ListedFile(("ftp://a/y b", "ftp://b/y b"), 8),
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["  out=x"], "line 1 of the list: 'out=x' is not an option"),
        (["ftp://a/x", "", " http://b/x"], "line 3 of the list: 'http://b/x' is not an option"),
        (["ftp://a/x", " dir=/etc"], "line 2 of the list"),
        (["ftp://a/x", " out=../x"], "line 2 of the list: the file name '../x' has"),
        (["ftp://a/x", " out=/etc/x"], "is absolute"),
        (["ftp://a/x", " out="], "is empty"),
        (["ftp://a/x", " checksum=md5=12"], "line 2 of the list"),
    ],
)
def test_an_invalid_line_is_named(lines, why):
    with pytest.raises(UsageError) as caught:
        read(lines)
    assert why in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("limit", ["MOST_BELOW", "MOST_CHARACTERS"])
def test_a_list_without_end_is_not_read(monkeypatch, limit):
    monkeypatch.setattr(file_list, limit, 100)

    def endless():
        while True:
            yield "ftp://a/x\n"

    with pytest.raises(TooMuch):
        read(endless())
