"""Tasks in our own interface: submission, status, cancellation; each user sees only their own. Servers are real."""

import os
from uuid import uuid4

import pytest

from tests.broker.services.conftest import TASKS, grant, somebody


async def test_a_submission_sent_twice_is_done_once(world):
    content = os.urandom(300_000)
    (world.source / "a b").write_bytes(content)
    submission = world.submission("/a b", label="the first")
    first = await world.ann.post(TASKS, json=submission)
    assert first.status_code == 202, first.text
    number = first.json()["id"]
    again = await world.ann.post(TASKS, json=submission)
    assert (first.json()["new"], again.json()) == (True, {"id": number, "new": False})
    task = await world.over(number)
    assert task["status"] == "SUCCEEDED", task
    assert (world.sink / "copy" / "a b").read_bytes() == content
    assert (task["source"]["name"], task["destination"]["name"], task["label"]) == ("from here", "to", "the first")
    assert (task["files"], task["bytes"], task["bytes_transferred"]) == (1, 300_000, 300_000)
    assert (task["work"]["pending"], task["seconds_left"], task["error"]) == (0, None, None)
    assert task["rate"] > 0


async def test_files_and_events_show_the_outcome_of_each_item(world):
    for name in "abc":
        (world.source / name).write_bytes(b"x" * 10)
    options = {"skip_source_errors": True}
    sent = await world.ann.post(TASKS, json=world.submission("/a", "/none", "/b", "/c", options=options))
    task = await world.over(sent.json()["id"])
    assert (task["status"], task["files_transferred"], task["work"]["skipped"]) == ("SUCCEEDED", 3, 1)
    found, after = [], 0
    while after is not None:
        page = (await world.ann.get(f"{TASKS}/{task['id']}/files", params={"limit": 2, "after": after})).json()
        found += page["files"]
        after = page["next"]
    assert sorted(each["source"] for each in found) == ["/a", "/b", "/c"]
    assert all(each["checksum"].startswith("sha256:") for each in found)
    (skipped,) = (await world.ann.get(f"{TASKS}/{task['id']}/files", params={"state": "skipped"})).json()["files"]
    assert (skipped["source"], skipped["error"]["code"]) == ("/none", "FILE_NOT_FOUND")
    events = (await world.ann.get(f"{TASKS}/{task['id']}/events")).json()["events"]
    assert events[0]["code"] == "SUCCEEDED"
    errors = (await world.ann.get(f"{TASKS}/{task['id']}/events", params={"errors": True})).json()["events"]
    assert [each["code"] for each in errors] == ["FILE_NOT_FOUND"]


async def test_a_failed_task_has_its_error(world):
    sent = await world.ann.post(TASKS, json=world.submission("/none"))
    task = await world.over(sent.json()["id"])
    assert (task["status"], task["error"]["code"]) == ("FAILED", "FILE_NOT_FOUND")
    assert "/none" in task["error"]["message"]
    (failed,) = (await world.ann.get(f"{TASKS}/{task['id']}/files", params={"state": "failed"})).json()["files"]
    assert failed["source"] == "/none"


async def test_files_are_deleted_where_that_is_granted(world):
    for root in (world.source, world.sink):
        (root / "old").write_bytes(b"x")
    submission = {"submission_id": str(uuid4()), "kind": "DELETE", "items": [{"source": "/old"}]}
    done = await world.ann.post(TASKS, json={**submission, "source": "to"})
    assert (await world.over(done.json()["id"]))["status"] == "SUCCEEDED"
    assert not (world.sink / "old").exists()
    refused = await world.ann.post(TASKS, json={**submission, "source": "from here", "submission_id": str(uuid4())})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "forbidden")
    assert (world.source / "old").exists()


async def test_a_task_is_its_owners_and_the_admins(world):
    number = (await world.ann.post(TASKS, json=world.submission("/x"))).json()["id"]
    bob = await somebody(world.broker, "bob")
    for path in ("", "/events", "/files", "/progress"):
        assert (await bob.get(f"{TASKS}/{number}{path}")).status_code == 404
    assert (await bob.post(f"{TASKS}/{number}/cancel")).status_code == 404
    assert (await bob.get(TASKS)).json() == {"tasks": [], "next": None}
    for owner in ("ann", "*"):
        assert (await bob.get(TASKS, params={"owner": owner})).status_code == 403
        everybody = (await world.admin.get(TASKS, params={"owner": owner})).json()["tasks"]
        assert [each["id"] for each in everybody] == [number]
    for unsaid in ({"owner": "ann\0"}, {"label": "n\0"}):
        assert (await world.admin.get(TASKS, params=unsaid)).status_code == 422
    assert (await world.admin.get(f"{TASKS}/{number}")).json()["owner"] == "ann"
    assert (await world.admin.get(TASKS)).json()["tasks"] == []


async def test_lists_come_in_pages_the_newest_first(world):
    (world.source / "a").write_bytes(b"x")
    for label in ("one", "two", "three", "four", "five"):
        await world.ann.post(TASKS, json=world.submission("/a", label=label))
    found, before = [], None
    while True:
        params = {"limit": 2, **({"before": before} if before else {})}
        page = (await world.ann.get(TASKS, params=params)).json()
        found += [each["label"] for each in page["tasks"]]
        before = page["next"]
        if before is None:
            break
    assert found == ["five", "four", "three", "two", "one"]
    some = (await world.ann.get(TASKS, params={"label": "t*", "kind": "TRANSFER"})).json()["tasks"]
    assert [each["label"] for each in some] == ["three", "two"]
    assert (await world.ann.get(TASKS, params={"collection": str(uuid4())})).json()["tasks"] == []
    assert (await world.ann.get(TASKS, params={"before": str(uuid4())})).status_code == 404


async def test_a_canceled_task_stays_canceled(world):
    waiting = {"name": "far", "kind": "local", "base": "/nowhere/", "site": "ELSEWHERE"}  # there is no worker
    await world.admin.put("/broker/v1/collections/far", json=waiting)
    await grant(world.admin, "far", "ann", "rw")
    first, second = [
        (await world.ann.post(TASKS, json={**world.submission("/x"), "destination": "far"})).json()["id"]
        for _ in range(2)
    ]
    assert (await world.ann.get(f"{TASKS}/{first}")).json()["status"] == "ACTIVE"
    for _ in range(2):
        task = (await world.ann.post(f"{TASKS}/{first}/cancel")).json()
        assert (task["status"], task["error"]["code"], task["work"]["canceled"]) == ("FAILED", "CANCELED", 1)
    by_admin = (await world.admin.post(f"{TASKS}/{second}/cancel")).json()
    assert by_admin["error"] == {"code": "CANCELED", "message": "canceled by an admin"}
    active = await world.ann.get(TASKS, params={"status": "ACTIVE"})
    assert active.json()["tasks"] == []


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"items": []}, 422),
        ({"items": [{"source": "/../x", "destination": "/x"}]}, 422),
        ({"items": [{"source": "/x", "destination": "/~/../x"}]}, 422),
        ({"items": [{"source": "/x\n", "destination": "/x"}]}, 422),
        ({"items": [{"source": "/x", "destination": "/x", "checksum": "md5"}]}, 422),
        ({"items": [{"source": "/x", "destination": "/x", "surprise": 1}]}, 422),
        ({"source": "no such"}, 404),
        ({"source": str(uuid4())}, 404),
        ({"destination": "from here"}, 403),
        ({"destination": None}, 422),
        ({"kind": "DELETE"}, 422),
        ({"kind": "DELETE", "destination": None, "items": [{"source": "/~/"}]}, 422),
        ({"submission_id": "1"}, 422),
        ({"label": "a\nb"}, 422),
        ({"label": "x" * 129}, 422),
        ({"deadline": 1}, 422),
        ({"priority": 5}, 403),
        ({"options": {"sync_level": 4}}, 422),
    ],
)
async def test_submissions_that_are_invalid_or_not_granted_are_refused(world, change, status):
    answer = await world.ann.post(TASKS, json={**world.submission("/x"), **change})
    assert answer.status_code == status, answer.text
    assert set(answer.json()["error"]) == {"code", "message", "remedy"}
    assert (await world.ann.get(TASKS)).json()["tasks"] == []


async def test_readers_cannot_submit_tasks(world):
    eve = await somebody(world.broker, "eve", "reader")
    assert (await eve.post(TASKS, json=world.submission("/x"))).status_code == 403
    assert (await eve.get(TASKS)).status_code == 200
    assert (await eve.get("/broker/v1/collections")).json() == {"collections": []}
    seen = (await world.ann.get("/broker/v1/collections")).json()["collections"]
    assert [each["name"] for each in seen] == ["from here", "to"]
