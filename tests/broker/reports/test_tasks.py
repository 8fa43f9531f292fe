"""The report on tasks: its search parameters."""

from uuid import uuid4

import pytest

COLLECTION = {"name": "far", "kind": "local", "base": "/nowhere/", "site": "ELSEWHERE"}
"""A collection of a site without a worker: its tasks wait."""


@pytest.mark.parametrize(
    ("label", "found"),
    [
        ("night*", ["nightly 2", "nightly 1"]),
        ("*1", ["nightly 1"]),
        ("NIGHTLY 1", ["nightly 1"]),
        ("*", ["100%", "nightly 2", "nightly 1"]),
        ("100%", ["100%"]),
        ("nightly", []),
        ("~*", []),
    ],
)
async def test_a_star_in_a_label_matches_any_text(admin, label, found):
    await admin.put("/broker/v1/sites/ELSEWHERE", json={"name": "ELSEWHERE"})
    await admin.put("/broker/v1/collections/far", json=COLLECTION)
    for each in ("nightly 1", "nightly 2", "100%"):
        items = [{"source": "/a", "destination": "/b"}]
        task = {"submission_id": str(uuid4()), "source": "far", "destination": "far", "items": items, "label": each}
        assert (await admin.post("/broker/v1/tasks", json=task)).status_code == 202
    (table,) = (await admin.get("/broker/v1/reports/tasks", params={"label": label})).json()["tables"]
    assert [row[0] for row in table["rows"]] == found
