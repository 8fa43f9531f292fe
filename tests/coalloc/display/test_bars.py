"""Progress on a terminal: a real pseudo-terminal, and its screen as lines."""

import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import pytest
from rich.cells import cell_len
from rich.console import Console

from coalloc.collect.values import CollectView, PairView
from coalloc.display import collect_bars
from coalloc.display.bars import Bars, draw
from coalloc.display.terminal import console
from tests.support.snapshots import report, snapshot, stream
from tests.support.waiting import PATIENCE

WIDTH, HEIGHT = 80, 24
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
SHOW_CURSOR, HIDE_CURSOR, UP = "\x1b[?25h", "\x1b[?25l", "\x1b[1A"


def picture(state, width=WIDTH, draw=draw):
    out = io.StringIO()
    Console(file=out, width=width, markup=False, highlight=False).print(draw(state))
    return out.getvalue().splitlines()


def test_the_picture_shows_file_and_sources():
    lines = picture(snapshot(0.425, 34.0))
    assert lines[0].split() == ["file.root", "fetching", "34", "s"]
    assert "42 %  4.25 GB of 10.0 GB  125 MB/s  46 s left" in lines[1]
    assert re.match(r"gridftp-door-00\.data-tra…  fetching +62\.5 MB/s +2\.12 GB +50 %", lines[2])
    assert re.match(r"se01\.example:2811 +dropped +- +0 bytes +0 %", lines[3])
    assert lines[5].strip() == "se01.example:2811: no such file"


@pytest.mark.parametrize(("width", "columns"), [(60, 12), (72, 12), (80, 12), (120, 47)])
def test_the_bar_of_a_source_has_twelve_columns_or_more(width, columns):
    lines = picture(snapshot(0.5, 40.0, sources=2), width)  # the first source has a share of all
    assert max(map(len, lines)) <= width
    source = next(line for line in lines if "fetching" in line and "gridftp" in line)
    assert re.fullmatch(r"gridftp-door\S*…  fetching    +125 MB/s.* 100 %  ━+", source)
    assert source.count("━") == columns


@pytest.mark.parametrize(
    ("width", "numbers"),
    [
        (60, ("50 %", "5.00 GB of 10.0 GB", "125 MB/s", "40 s left")),
        (40, ("50 %", "125 MB/s", "40 s left")),
        (20, ("50 %",)),
    ],
)
def test_a_narrow_terminal_gets_fewer_numbers_and_none_is_cut(width, numbers):
    name = "数据集合の名前はとても長い名前です-run2024-final.root"
    lines = picture(snapshot(0.5, 40.0, sources=2, name=name), width)
    assert max(map(cell_len, lines)) <= width
    assert re.fullmatch(r"数.*…  fetching  40 s", lines[0]) if width >= 40 else lines[0].startswith("数")
    assert re.fullmatch("[━╸╺ ]{12,}" + "  ".join(map(re.escape, numbers)), lines[1])
    assert re.fullmatch("gridf\\S*…  .*━{12}", lines[2])


@pytest.mark.parametrize(("width", "numbers"), [(80, 3), (60, 3), (46, 2), (24, 0)])
def test_a_narrow_terminal_cuts_no_number_of_a_collect_job(width, numbers):
    pairs = (
        PairView("ftp://127.0.0.1:30302", "ftp://127.0.0.1:30303", 49.7e6, 70_000_000, 5),
        PairView("ftp://gridftp.data-transfer.example:30302", "here", 4e6, 6_000_000, 123),
    )
    view = CollectView("data", "collecting", 34.0, 10**9, 5 * 10**8, 5e7, 10.0, 3, 1, pairs)
    lines = picture(view, width, draw=collect_bars.draw)
    assert max(map(len, lines)) <= width
    for line, *shown in (
        (lines[3], "49.7 MB/s", "70.0 MB", "5 pieces"),
        (lines[4], "4.00 MB/s", "6.00 MB", "123 pieces"),
    ):
        assert re.split(" {2,}", line.strip())[1:] == shown[:numbers]
    assert lines[3].startswith("127.0.0.1:30302 -> 1")


def test_short_names_leave_the_bar_more_columns():
    state = snapshot(0.5, 40.0, sources=2)
    short = tuple(view._replace(url=f"ftp://h{i}/x", error=None) for i, view in enumerate(state.sources))
    lines = picture(state._replace(sources=short), 60)
    assert re.fullmatch(r"h0  fetching     125 MB/s    5\.00 GB  100 %  ━{15}", lines[2])


@pytest.mark.parametrize("sources", [0, 1, 16])
def test_the_picture_fits_a_plain_terminal(sources):
    lines = picture(snapshot(0.5, 40.0, sources, name="a very long name " * 9))
    assert len(lines) <= HEIGHT - 1
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) >= 3 + sources


def test_the_picture_before_a_size_is_known():
    lines = picture(snapshot(0.0, 0.3, phase="connecting", size=None, rate=0.0, eta_seconds=None))
    assert "connecting" in lines[0]
    assert "%" not in lines[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("LINES", str(HEIGHT))
    return Terminal()


def test_many_snapshots_are_few_pictures(terminal):
    bars = Bars(terminal)
    for state in stream(seconds=2.0, steps=2000):
        bars.show(state)
    bars.close(finished=True)
    pictures = terminal.getvalue().count("\x1b[1mfile.root")
    assert 10 <= pictures <= 26


def test_unfinished_bars_stay_on_the_screen(terminal):
    bars = Bars(terminal)
    bars.show(snapshot(0.5, 1.0))
    bars.show(snapshot(0.6, 1.1))
    bars.close(finished=False)
    left = terminal.getvalue().rpartition("file.root")[2]
    assert "60 %" in left
    after = left.rpartition("fetching")[2]
    assert UP not in after
    assert after.endswith(SHOW_CURSOR)


@pytest.mark.parametrize(("program", "wraps"), [({}, True), ({"XTERM_VERSION": "XTerm(379)"}, False)])
def test_a_narrowed_terminal_keeps_no_line_of_the_wider_picture(terminal, monkeypatch, program, wraps):
    for name in ("XTERM_VERSION", "STY", "TMUX"):
        monkeypatch.delenv(name, raising=False)
    for name, value in program.items():
        monkeypatch.setenv(name, value)
    bars = Bars(terminal)
    monkeypatch.setattr(Console, "width", WIDTH)
    bars.show(snapshot(0.5, 1.0))
    wide = ESCAPE.sub("", terminal.getvalue()).split("\n")
    monkeypatch.setattr(Console, "width", 40)
    terminal.truncate(0)
    bars.show(snapshot(0.6, 2.0))
    rows = sum(max(1, -(-cell_len(line) // 40)) for line in wide) if wraps else len(wide)
    assert terminal.getvalue().count(UP) == rows - 1
    assert rows > len(wide) or not wraps
    terminal.truncate(0)
    bars.show(snapshot(0.7, 3.0))  # of the same width again
    assert terminal.getvalue().count(UP) == len(wide) - 1
    bars.close(finished=False)


def test_a_terminal_that_is_narrowed_between_two_files_keeps_the_lines_above(terminal, monkeypatch):
    monkeypatch.setattr(Console, "width", WIDTH)
    bars = Bars(terminal)
    bars.show(snapshot(1.0, 80.0, phase="done"))
    bars.close(finished=True)
    monkeypatch.setattr(Console, "width", 40)
    terminal.truncate(0)
    bars.show(snapshot(0.0, 0.0, name="second.root"))
    bars.close(finished=False)
    assert terminal.getvalue().partition("second.root")[0].count(UP) == 0


def test_a_second_file_leaves_a_line_of_the_first(terminal):
    bars = Bars(terminal)
    bars.show(snapshot(1.0, 80.0, phase="done"))
    bars.show(snapshot(0.0, 0.0, name="second.root"))
    bars.close(finished=False)
    between = terminal.getvalue().rpartition("second.root")[0].rpartition("file.root")[2]
    assert UP not in between.partition("second.root")[0]
    plain = ESCAPE.sub("", terminal.getvalue())
    assert re.search(r"file\.root +done +1 min 20 s\s+second\.root", plain)


def test_closing_without_a_picture_writes_nothing(terminal):
    Bars(terminal).close(finished=False)
    assert ESCAPE.sub("", terminal.getvalue()).strip() == ""


def test_a_pipe_gets_whole_lines():
    out = io.StringIO()
    console(out).print("x" * 300)
    assert out.getvalue() == "x" * 300 + "\n"


@pytest.mark.parametrize("width", [60, WIDTH])
def test_on_a_real_terminal_the_report_takes_the_place_of_the_bars(width):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    life = ["timeout", "--signal=KILL", f"{PATIENCE:.0f}"]
    command = [*life, sys.executable, "-m", "tests.support.snapshots", "16", "0.6"]
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment["TERM"] = "xterm-256color"
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        try:
            output = read_all(master)
            assert process.wait() == 0
        finally:
            process.kill()
            os.close(master)
    assert max(len(line) for line in re.split(r"[\r\n]+", ESCAPE.sub("", output))) <= width
    assert output.count(HIDE_CURSOR) == output.count(SHOW_CURSOR) == 1
    left = ESCAPE.sub("", output.rpartition(SHOW_CURSOR)[2])
    assert report().output in left
    assert left.count("MB/s") == 1 + 15
    assert "fetching" not in left


def read_all(master):
    output = b""
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while chunk := os.read(master, 65536):
            output += chunk
    return output.decode()
