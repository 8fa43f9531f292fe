"""Progress as lines."""

import io

from coalloc.display.text import Lines
from tests.support.snapshots import snapshot, stream


def shown(snapshots):
    out = io.StringIO()
    lines = Lines(out)
    for state in snapshots:
        lines.show(state)
    return out.getvalue().splitlines()


def test_transfer_is_shown_in_a_few_lines():
    lines = shown(stream(seconds=80))
    assert lines[0] == "file.root: connecting"
    assert lines[1].startswith("se01.example:2811: no such file (dropped)")
    assert lines[2] == "file.root: 0 %, 0 bytes of 10.0 GB, 125 MB/s, 1 min 20 s left"
    assert lines[-2:] == ["file.root: verifying", "file.root: done"]
    # 80 s hold a line every 5 s and one for each tenth of the file.
    assert 15 <= len(lines) <= 32


def test_a_fast_transfer_does_not_flood():
    assert len(shown(stream(seconds=0.5))) == 5


def test_stalled_transfer_continues_to_print_lines():
    lines = shown(snapshot(0.5, seconds, rate=0.0, eta_seconds=None) for seconds in range(21))
    progress = [line for line in lines if line.startswith("file.root")]
    assert progress == ["file.root: 50 %, 5.00 GB of 10.0 GB, 0 kB/s"] * 5


def test_error_of_a_source_is_shown_once():
    lines = shown(snapshot(0.5, seconds / 10) for seconds in range(9))
    assert sum("no such file" in line for line in lines) == 1
