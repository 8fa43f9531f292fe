"""Tables on terminals of different widths."""

import io

import pytest

from coalloc.display.terminal import PlainConsole

HEADINGS = (">task", "state", ">files", ">bytes", ">age", "what")
REASON = "all of run 1: tape is paused since 14:02 UTC: down until noon"
ROWS = [
    ("5f0c1b3e", "waiting", "1,234", "12.3 GB", "12 h 12 min", REASON),
    ("5f0c1b3f", "done", "2", "1 kB", "1 s", ""),
]


def printed(width, rows=ROWS):
    out = io.StringIO()
    PlainConsole(file=out, width=width, markup=False, highlight=False, emoji=False).print_table(HEADINGS, rows)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize("width", [30, 40, 60, 80, 100])
def test_a_table_fits_the_terminal_and_no_word_of_it_is_lost(width):
    lines = printed(width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    assert all(word in text for row in ROWS for cell in row for word in cell.split())
    assert all(heading.lstrip(">") in text for heading in HEADINGS)


def test_a_narrow_terminal_shows_a_line_for_each_value():
    assert printed(80)[0].split() == ["task", "state", "files", "bytes", "age", "what"]
    lines = printed(50)
    assert lines[:3] == ["task   5f0c1b3e", "state  waiting", "files  1,234"]
    assert lines[lines.index("") + 1 :] == [
        "task   5f0c1b3f",
        "state  done",
        "files  2",
        "bytes  1 kB",
        "age    1 s",
        "",
    ]
