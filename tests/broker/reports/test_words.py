"""Text for people: units, times, and names that are shortened without becoming ambiguous."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.reports.document import Unit, Value
from broker.reports.words import LONGEST, scale, short, written
from coalloc.safe_text import escaped


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (52_340_000.0, "rate", "52.3 MB/s"),
        (1_000_000_000, "bytes", "1 GB"),
        (999, "bytes", "999 B"),
        (0, "bytes", "0 B"),
        (0.0213, "seconds", "21.3 ms"),
        (75.0, "seconds", "75 s"),
        (5400.0, "seconds", "90 min"),
        (864_000, "seconds", "10 d"),
        (0.815, "share", "81.5 %"),
        (-0.25, "share", "-25 %"),
        (1234567, "count", "1,234,567"),
        (1.52, "factor", "1.52 ×"),
        (0.0, "moment", "1970-01-01 00:00 UTC"),
        (None, "rate", "–"),
        (float("nan"), "rate", "–"),
        (True, "text", "yes"),
        ("a\x00b", "text", r"a\x00b"),
    ],
)
def test_values_have_their_units(value: Value, unit: Unit, text: str):
    assert written(value, unit) == text


def test_an_axis_has_one_unit():
    assert scale("rate", 123e9) == (1e9, "GB/s")
    assert scale("seconds", 3600.0) == (60.0, "min")
    assert scale("bytes", 0) == (1.0, "B")


@given(st.lists(st.text(max_size=60)))
def test_short_names_fit_and_differ(names: list[str]):
    made = short(names)
    assert made.keys() == set(names)
    assert len(set(made.values())) == len(made)
    assert all(0 < len(each) <= LONGEST for each in made.values())


@given(st.text())
def test_escaped_text_has_no_invisible_characters(text: str):
    assert not any(unicodedata.category(letter) in ("Cc", "Cf", "Cn", "Cs") for letter in escaped(text))
