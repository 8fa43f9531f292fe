"""`coget-broker report`: reports as files, with or without a running broker."""

import csv
import io
import json
import os
import subprocess
from pathlib import Path

import pypdf
import pytest

from tests.support import programs
from tests.support.broker import PROGRAM
from tests.support.coget import without


@pytest.fixture
async def audited(admin, database) -> str:
    """The URL of a database with a site."""
    assert (await admin.put("/broker/v1/sites/CERN", json={"name": "CERN"})).status_code == 200
    return database


def run(database: str, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [PROGRAM, "report", "--database", database, *words]
    return programs.run(command, env={**os.environ, **environment})


def fault(made: subprocess.CompletedProcess[bytes]) -> str:
    assert made.returncode == 2
    assert b"Traceback" not in made.stderr
    return made.stderr.decode()


def test_one_report_or_all_in_the_format_that_the_file_is_named_after(audited, tmp_path):
    for name in ("audit", "all"):
        for suffix in ("html", "pdf", "json"):
            file = tmp_path / f"{name}.{suffix}"
            made = run(audited, name, "-o", str(file))
            assert (made.returncode, made.stdout, made.stderr) == (0, b"", b"")
    assert "CERN" in (tmp_path / "audit.html").read_text()
    assert "CERN" in pypdf.PdfReader(tmp_path / "audit.pdf").pages[0].extract_text()
    (table,) = json.loads((tmp_path / "audit.json").read_text())["tables"]
    assert "CERN" in str(table["rows"])


def test_a_table_is_csv(audited):
    output = run(audited, "audit/changes", "--format", "csv").stdout.decode()
    rows = list(csv.DictReader(io.StringIO(output)))
    assert "CERN" in [row["thing"] for row in rows]


def test_arguments_select_the_rows_of_a_report(audited):
    everything = json.loads(run(audited, "audit", "--format", "json").stdout)["tables"][0]["rows"]
    newest = max(row[0] for row in everything)
    asked = json.loads(run(audited, "audit", f"before={newest}", "--format", "json").stdout)["tables"][0]["rows"]
    assert [row[0] for row in asked] == [row[0] for row in everything][1:]


@pytest.mark.parametrize("name", ["all", "forecasters"])
def test_a_period_may_have_any_number_of_days(audited, name):
    made = run(audited, name, "--days", "10", "--format", "json")
    assert (made.returncode, made.stderr) == (0, b"")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "there is no report nothing"),
        (["audit", "before=x"], "before: Input should be a valid integer"),
        (["audit", "other=x"], "other: Extra inputs are not permitted"),
        (["audit", "before"], "not like source=CERN"),
        (["audit", "--format", "csv"], "choose one of audit/changes"),
        (["audit/nothing", "--format", "csv"], "choose one of audit/changes"),
        (["audit/changes"], "leave out /changes"),
        (["audit", "--days", "7"], "has no period"),
        (["all", "--until", "2026-01-01"], "has no end date"),
        (["all", "--days", "400"], "days: "),
        (["all", "--days", "7", "--since", "2026-01-01"], "give one of them"),
        (["all", "--since", "2026-01-02", "--until", "2026-01-01"], "ends before it begins"),
        (["all", "--since", "soon"], "neither a date like 2026-11-22"),
        (["all", "-o", "/nowhere/report.html"], "cannot write /nowhere/report.html: No such file or directory"),
    ],
)
def test_invalid_arguments_are_named(audited, words, message):
    assert message in fault(run(audited, *words))


def test_a_database_without_tables_is_named(empty_database):
    assert "coget-broker upgrade" in fault(run(empty_database, "all"))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_without_typst_it_prints_what_to_install(audited, tmp_path: Path):
    made = run(audited, "audit", "-o", str(tmp_path / "a.pdf"), **without("typst", tmp_path))
    assert "pip install 'coget[pdf]'" in fault(made)
