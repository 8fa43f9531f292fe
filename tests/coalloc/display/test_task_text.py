"""A broker's task for people: a live picture, lines, and one final line."""

import io

import pytest
from rich.console import Console

from coalloc.display.task_bars import draw
from coalloc.display.task_text import TaskLines, summary
from coalloc.model.tasks import TaskView

HALF = TaskView(
    id="5f0c1b3e-8d0a-4b52-9d3c-3b0d6f1f2a77",
    label="all of run 1",
    kind="transfer",
    status="ACTIVE",
    ends=("cern", "fnal"),
    requested=1_000_000.0,
    begun=True,
    seconds=10.0,
    done_bytes=5_000_000_000,
    size=10_000_000_000,
    rate=5e8,
    eta_seconds=10.0,
    files=2000,
    files_done=1000,
    files_skipped=0,
    left_out=0,
    failed=0,
    faults=0,
    waits="",
    error=None,
    document={},
)
DONE = HALF._replace(status="SUCCEEDED", done_bytes=10_000_000_000, files_done=2000, seconds=20.0, eta_seconds=None)


def picture(task, width=80):
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False).print(draw(task))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_picture_of_a_task():
    lines = picture(HALF)
    assert lines[0] == "all of run 1  under way  10 s"
    assert lines[1].endswith("50 %  5.00 GB of 10.0 GB  500 MB/s  10 s left")
    assert lines[2] == "1,000 of 2,000 files"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"files_unverified": 2}, "1,000 of 2,000 files, 2 files not verified"),
        ({"folders_not_cleared": 2}, "1,000 of 2,000 files, extra files left in 2 directories"),
        ({"faults": 1, "files_skipped": 3}, "1,000 of 2,000 files, 3 existed already, 1 fault"),
        ({"left_out": 2, "failed": 1}, "1,000 of 2,000 files, 2 skipped because of errors, 1 failed"),
        ({"waits": "cern has its 4 transfers"}, "cern has its 4 transfers"),
        ({"waits": "cern is paused", "remedy": "wait"}, "cern is paused (wait)"),
        ({"begun": False, "files": 0, "size": 0, "done_bytes": 0}, "no worker has started it yet"),
        ({"label": None}, "cern to fnal  under way  10 s"),
        ({"label": "\x1b[2Jred\nalert"}, r"\x1b[2Jred\nalert  under way  10 s"),
        ({"waits": "\x1b]0;title"}, r"\x1b]0;title"),
    ],
)
def test_picture_shows_exceptions_waits_and_escaped_labels(change, says):
    lines = picture(HALF._replace(**change))
    assert says in lines
    assert all(len(line) <= 80 for line in lines)


def test_lines_are_few_and_each_is_news():
    out = io.StringIO()
    lines = TaskLines(out)
    for tenth in range(5, 101):
        count = tenth * 100_000_000
        lines.show(HALF._replace(done_bytes=count, seconds=10 + tenth / 10, waits="its turn" if tenth > 90 else ""))
    lines.show(DONE)
    shown = out.getvalue().splitlines()
    assert 8 < len(shown) < 16
    assert shown.count("all of run 1: its turn") == 1
    assert shown[-1] == "all of run 1: done, 2,000 of 2,000 files, 10.0 GB of 10.0 GB"


def test_finished_task_is_summarised_in_one_line():
    assert summary(DONE) == "all of run 1: 2,000 files, 10.0 GB in 20 s, 500 MB/s"
    deleted = DONE._replace(kind="delete", done_bytes=0, size=0, rate=0.0)
    assert summary(deleted).startswith("all of run 1: 2,000 files deleted in 20 s")
