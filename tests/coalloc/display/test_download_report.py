"""The report after a transfer, as text."""

import io
import re

import pytest

from coalloc.display.download_report import headline, print_reports, verification
from coalloc.model.checksums import Checksum
from tests.support.snapshots import report

SUM = Checksum("adler32", "0a1b2c3d")


def printed(*reports):
    out = io.StringIO()
    print_reports(reports, out)
    return out.getvalue()


def test_the_summary_names_file_time_rate_and_what_each_source_gave():
    lines = printed(report()).splitlines()
    assert lines[0] == "data/file.root: 10.0 GB in 1 min 20 s, 125 MB/s (adaptive); 1.20 MB were received twice"
    assert lines[2] == "Two sources of equal rate share the file."
    rows = [line.split() for line in lines[4:7]]
    assert rows[0][1:] == ["50", "%", "5.00", "GB", "62.5", "MB/s", "ok"]
    assert rows[1] == ["se01.example:2811", "0", "%", "0", "bytes", "-", "failed"]
    assert lines[7] == "se01.example:2811: no such file"


def test_headline_of_a_file_that_was_there_has_no_rate():
    there = report(there=True, resumed_bytes=10_000_000_000)
    assert headline(there) == "data/file.root: nothing to fetch, all 10.0 GB were already here (found in 1 min 20 s)"


def test_headline_shows_resumed_bytes():
    assert headline(report(resumed_bytes=5_000_000_000, duplicate_bytes=0)).endswith("; 5.00 GB were already here")


@pytest.mark.parametrize(
    ("checksum", "basis", "words"),
    [
        (None, "none", "not verified: no checksum was stored"),
        (SUM, "none", "not verified, nothing to compare with: adler32 0a1b2c3d"),
        (SUM, "own word", "not verified, only its own server confirms the checksum: adler32 0a1b2c3d"),
        (SUM, "agree", "verified, replicas agree: adler32 0a1b2c3d"),
        (SUM, "given", "verified: adler32 0a1b2c3d"),
    ],
)
def test_verification_line_names_the_basis_and_the_checksum(checksum, basis, words):
    assert verification(report(checksum=checksum, basis=basis)) == words


def test_brackets_and_control_characters_do_no_harm():
    text = printed(report(output="a[/bold]\x1b[2J\nb"))
    assert text.startswith(r"a[/bold]\x1b[2J\nb: ")


def test_an_empty_file_has_no_shares():
    text = printed(report(size=0)._replace(sources=report().sources[1:2]))
    assert "0 bytes in" in text
    assert re.search(r"se01\.example:2811 +- +0 bytes +- +failed", text)
