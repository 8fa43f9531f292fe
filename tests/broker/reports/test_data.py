"""Reports as data: files hold the same values as the tables."""

import csv
import io
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.reports.data import csv_of, document, part_of, table_of
from broker.reports.document import Column, Figure, Report, Table

COLUMNS = (Column("who", "Who"), Column("rate", "Rate", "rate"))
TABLE = Table("t", "T", COLUMNS, [("ann", 1.5), ("ben", None)])
FIGURE = Figure("f", "F", TABLE, {}, "two people")


@pytest.mark.parametrize("formula", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", '=HYPERLINK("http://x")'])
def test_no_text_is_a_formula_for_a_spreadsheet(formula):
    (_, row) = csv.reader(io.StringIO(csv_of(Table("t", "T", COLUMNS, [(formula, -1.5)])), newline=""))
    assert row == [f"'{formula}", "-1.5"]


@given(
    st.lists(
        st.tuples(st.text().filter(lambda word: not word.startswith(("=", "+", "-", "@", "\t", "\r"))), st.floats())
    )
)
def test_rows_come_out_as_they_went_in(rows):
    read = list(csv.reader(io.StringIO(csv_of(Table("t", "T", COLUMNS, rows)), newline="")))
    assert read[0] == ["who", "rate"]
    assert [(who, rate) for who, rate in read[1:]] == [(who, str(rate)) for who, rate in rows]


@given(st.floats())
def test_json_has_no_number_that_json_does_not_know(value):
    content = document(Report("r", "R", "", 0.0, tables=[Table("t", "T", COLUMNS, [("ann", value)])]))
    read = json.loads(json.dumps(content, allow_nan=False))["tables"][0]["rows"][0][1]
    assert read == (value if math.isfinite(value) else None)


def test_a_figure_and_its_table_are_found():
    report = Report("r", "R", "", 0.0, figures=[FIGURE])
    assert part_of(report, "f") is FIGURE
    assert table_of(report, "f") is TABLE is table_of(report, "t")
    assert part_of(report, "x") is None
