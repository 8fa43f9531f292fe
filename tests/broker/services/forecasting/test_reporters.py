"""Reporters and errors of transfers: shown to the reporter and to admins, by one rule everywhere."""

import csv
import io
import time

import httpx
import pyarrow.parquet
import pytest

from broker.models.callers import NewToken
from broker.models.history import TransferRecord
from broker.reports.registry import REPORTS
from tests.broker.conftest import Broker
from tests.broker.reports.conftest import Sitting

T = "/broker/v1/transfers"
NOW = time.time()
SECRET = "denied to CN=Ann Secret"


async def _somebody(broker: Broker, subject: str, role: str) -> tuple[httpx.AsyncClient, str]:
    token = (await broker.factory.tokens.issue("tests", NewToken(subject=subject, role=role, site="HERE"))).token
    return broker.with_headers({"Authorization": f"Bearer {token}"}), token


def _failed(i: int, error: str) -> dict:
    began = NOW - 1000 + 10 * i
    transfer = {"id": f"r{i}", "source": "ftp://dtn.example", "sink": "HERE", "started": began, "ended": began + 5}
    return {**transfer, "bytes": 5_000_000, "outcome": "failed", "error": error}


@pytest.fixture
async def reported(broker: Broker) -> Broker:
    """Failed transfers of two users, each with an error that only its reporter and admins may see."""
    for subject, i in (("ann-of-cern", 1), ("bob-of-fnal", 2)):
        client, _ = await _somebody(broker, subject, "transfer")
        assert (await client.post(T, json=_failed(i, f"{SECRET} {subject}"))).status_code == 200
    await broker.settled()
    return broker


async def _told(client: httpx.AsyncClient) -> list[set[tuple[str | None, str | None]]]:
    """Return the subjects and errors in each form of the history."""
    listed = (await client.get(T)).json()["transfers"]
    text = (await client.get(f"{T}/export")).text
    rows = list(csv.DictReader(io.StringIO(text)))
    answer = await client.get(f"{T}/export", params={"format": "parquet"})
    table = pyarrow.parquet.read_table(io.BytesIO(answer.content)).to_pylist()
    forms = (listed, [{name: value or None for name, value in row.items()} for row in rows], table)
    return [{(each["subject"], each["error"]) for each in form} for form in forms]


async def test_the_history_shows_subjects_and_errors_of_ones_own_rows_and_all_to_admins(reported):
    every = {(name, f"{SECRET} {name}") for name in ("ann-of-cern", "bob-of-fnal")}
    own = {("ann-of-cern", f"{SECRET} ann-of-cern"), (None, None)}
    for name, role, expected in (
        ("root", "admin", every),
        ("ann-of-cern", "transfer", own),
        ("ann-of-cern", "reader", own),
        ("eve", "reader", {(None, None)}),
        ("eve", "curator", {(None, None)}),
    ):
        client, _ = await _somebody(reported, name, role)
        assert await _told(client) == [expected] * 3


@pytest.mark.parametrize("path", [T, f"{T}/export"])
async def test_no_filter_reveals_the_owners_of_transfers(reported, path):
    eve, _ = await _somebody(reported, "eve", "curator")
    for named in ("ann-of-cern", "there-is-none"):
        assert (await eve.get(path, params={"subject": named})).status_code == 403
    assert (await eve.get(path, params={"subject": "eve"})).status_code == 200
    ann, _ = await _somebody(reported, "ann-of-cern", "reader")
    own = await ann.get(path, params={"subject": "ann-of-cern"})
    assert "ann-of-cern" in own.text
    assert "bob-of-fnal" not in own.text
    root, _ = await _somebody(reported, "root", "admin")
    assert "bob-of-fnal" in (await root.get(path, params={"subject": "bob-of-fnal"})).text


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [kind.name for kind in REPORTS.values() if not kind.admin])
async def test_reports_keep_the_same_rule(reported, name):
    """Pages, JSON for browsers and JSON for programs show users and errors to the admin, and not to another reader."""
    asked = {"source": "ftp://dtn.example", "sink": "HERE", "id": "1"}
    eve, token = await _somebody(reported, "eve", "curator")
    sitting = Sitting(reported)
    await sitting.login(token, "/reports")
    answers = [await eve.get(f"/broker/v1/reports/{name}", params=asked)]
    for path in (f"/reports/{name}", f"/reports/{name}.json"):
        answers.append(await sitting.client.get(path, params=asked))
    assert all("ann-of-cern" not in each.text and SECRET not in each.text for each in answers)


async def test_a_report_shows_errors_of_others_to_an_admin(reported):
    root, _ = await _somebody(reported, "root", "admin")
    asked = {"source": "ftp://dtn.example", "sink": "HERE"}
    assert SECRET in (await root.get("/broker/v1/reports/pair", params=asked)).text


def test_the_scope_decides_what_a_record_shows():
    row = TransferRecord.model_construct(id=1, subject="ann", error="why")
    assert row.shown_to(None) is row
    assert row.shown_to("ann") is row
    assert (row.shown_to("bob").subject, row.shown_to("bob").error) == (None, None)
