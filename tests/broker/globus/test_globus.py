"""The Globus Transfer API, request by request: accepted and refused requests, and the messages."""

import time
from datetime import datetime, timedelta
from uuid import uuid4

import pytest

from broker.handlers.globus import operations
from broker.models.callers import NewToken
from broker.models.identities import identity
from broker.services.collections.trees import local

V = "/v0.10"
EVERYBODY = {"principal_type": "all_authenticated_users", "permissions": "rw"}


async def somebody(broker, subject, role="transfer"):
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=subject, role=role))
    return broker.with_headers({"Authorization": f"Bearer {issued.token}"})


@pytest.fixture
async def ends(stocked, tmp_path):
    """Ids of two collections at servers that do not answer, of a local directory, and of the catalogue."""
    folder = tmp_path / "disk"
    folder.mkdir()
    bodies = {
        "near": {"endpoint": "cern-1", "base": "/near", "description": "Tape at the rim"},
        "far": {"endpoint": "cern-2", "base": "/"},
        "disk": {"kind": "local", "base": str(folder)},
        "catalogue": {"kind": "catalogue"},
    }
    for name, body in bodies.items():
        body["name"] = name
        assert (await stocked.put(f"/broker/v1/collections/{name}", json=body)).status_code == 200
        assert (await stocked.post(f"/broker/v1/collections/{name}/rules", json=EVERYBODY)).status_code == 201
    found = (await stocked.get("/broker/v1/collections")).json()["collections"]
    return {each["name"]: each["id"] for each in found}


@pytest.fixture
async def ann(broker):
    return await somebody(broker, "ann")


def transfer(ends, *items, source="near", destination="far", **more):
    data = [{"DATA_TYPE": "transfer_item", "source_path": a, "destination_path": b} for a, b in items or [("/a", "/b")]]
    document = {
        "DATA_TYPE": "transfer",
        "submission_id": str(uuid4()),
        "source_endpoint": ends[source],
        "destination_endpoint": ends[destination],
        "DATA": data,
    }
    return document | more


async def submitted(client, document):
    answer = await client.post(f"{V}/{'transfer' if 'source_endpoint' in document else 'delete'}", json=document)
    assert answer.status_code == 202, answer.text
    return answer.json()["task_id"]


async def looked(client, number):
    return (await client.get(f"{V}/task/{number}")).json()


async def test_a_submission_is_a_task_once(ann, ends):
    document = transfer(ends) | {"submission_id": (await ann.get(f"{V}/submission_id")).json()["value"]}
    first, again = [await ann.post(f"{V}/transfer", json=document) for _ in range(2)]
    assert (first.status_code, again.status_code) == (202, 200)
    assert (first.json()["code"], again.json()["code"]) == ("Accepted", "Duplicate")
    assert first.json()["task_id"] == again.json()["task_id"] != document["submission_id"]
    assert first.json()["submission_id"] == document["submission_id"]
    assert first.json()["DATA_TYPE"] == "transfer_result"
    assert (await ann.get(f"{V}/task_list")).json()["total"] == 1


async def test_a_submission_id_names_one_submission_of_whichever_kind(ann, ends):
    document = transfer(ends)
    assert (await ann.post(f"{V}/transfer", json=document)).json()["code"] == "Accepted"
    other = {"DATA_TYPE": "delete", "submission_id": document["submission_id"], "endpoint": ends["near"]}
    refused = await ann.post(f"{V}/delete", json=other | {"DATA": [{"DATA_TYPE": "delete_item", "path": "/a"}]})
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict")
    assert "transfer" in refused.json()["message"]
    assert (await ann.get(f"{V}/task_list")).json()["total"] == 1


async def test_two_users_may_have_the_same_submission_id(broker, ann, ends):
    bob = await somebody(broker, "bob")
    document = transfer(ends)
    assert await submitted(ann, document) != await submitted(bob, document)


async def test_every_option_of_a_submission_is_kept(broker, ann, ends):
    options = {
        "sync_level": 3,
        "verify_checksum": False,
        "preserve_timestamp": True,
        "encrypt_data": False,
        "skip_source_errors": True,
        "fail_on_quota_errors": True,
        "delete_destination_extra": True,
        "recursive_symlinks": "keep",
        "notify_on_succeeded": False,
        "perf_cc": 2,
        "perf_p": 4,
        "perf_pp": 20,
    }
    more = {
        "label": "nightly — Zürich",
        "deadline": "2033-05-18 03:33:20",
        "filter_rules": [{"DATA_TYPE": "filter_rule", "method": "include", "name": "*.txt", "type": "file"}],
        "perf_udt": True,
        "store_base_path_info": False,
        "source_local_user": "x",
        "x_range": [0, 10],
    }
    document = transfer(ends, ("~/a b/", "/~/x//y"), ("/l", "/m"), ("/c/../d", "/e")) | options
    document["DATA"][0] |= {"recursive": True, "x_range": 1}
    document["DATA"][1] |= {"DATA_TYPE": "transfer_symlink_item"}
    document["DATA"][2] |= {"external_checksum": "0A", "checksum_algorithm": "SHA-256"}
    document["DATA"].append({"source_path": "/z", "destination_path": "/z", "checksum_algorithm": "SHA1"})
    number = await submitted(ann, document | more)
    reply = await looked(ann, number)
    shared = options.keys() & reply.keys()
    assert {name: reply[name] for name in shared} == {name: options[name] for name in shared}
    assert (reply["label"], reply["deadline"]) == ("nightly — Zürich", "2033-05-18T03:33:20+00:00")
    assert reply["filter_rules"] == more["filter_rules"]
    async with broker.factory.database.read() as connection:
        rows = await connection.exec_driver_sql("SELECT source, destination, kind, details FROM work ORDER BY source")
        *kept, last = [tuple(row) for row in rows]
    assert [row[:3] for row in kept] == [("/a b/", "/x/y", "look"), ("/d", "/e", "look"), ("/l", "/m", "link")]
    assert '"sha256:0a"' in kept[1][3]
    assert '"sha1:"' in last[3]


async def test_a_task_with_encryption_is_refused(ann, ends):
    """No client sends this unless the user asks for it."""
    answer = await ann.post(f"{V}/transfer", json=transfer(ends) | {"encrypt_data": True})
    assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest")
    assert "does not encrypt" in answer.json()["message"]
    assert (await ann.get(f"{V}/task_list")).json()["total"] == 0
    own = {"kind": "TRANSFER", "source": str(ends["near"]), "destination": str(ends["far"])}
    items = [{"source": "/a", "destination": "/b"}]
    answer = await ann.post(f"{V}/broker/v1/tasks", json=own | {"items": items, "encrypt_data": True})
    assert answer.status_code in (400, 422)


DEADLINES = [
    ("2033-05-18 03:33:20", 2_000_000_000),
    ("2033-05-18T03:33:20", 2_000_000_000),
    ("2033-05-18T05:33:20+02:00", 2_000_000_000),
    ("2033-05-18T03:33:20Z", 2_000_000_000),
    ("2033-05-18", 1_999_987_200),
]


async def test_deadlines_are_read_as_the_clients_write_them(ann, ends):
    for deadline, seconds in DEADLINES:
        reply = await looked(ann, await submitted(ann, transfer(ends, deadline=deadline)))
        assert datetime.fromisoformat(reply["deadline"]).timestamp() == seconds, deadline


async def test_without_a_deadline_a_task_has_a_day(ann, ends):
    reply = await looked(ann, await submitted(ann, transfer(ends)))
    asked, until = (datetime.fromisoformat(reply[name]) for name in ("request_time", "deadline"))
    assert timedelta(hours=23) < until - asked <= timedelta(days=1, seconds=1)


SENSELESS = [
    ({"DATA": []}, 400, "ClientError.BadRequest.NoTransferItems"),
    ({"DATA_TYPE": "delete"}, 400, "ClientError.BadRequest"),
    ({"submission_id": None}, 400, "ClientError.BadRequest"),
    ({"submission_id": "mine"}, 400, "ClientError.BadRequest"),
    ({"source_endpoint": str(uuid4())}, 404, "EndpointNotFound"),
    ({"source_endpoint": "near"}, 400, "ClientError.BadRequest"),
    ({"label": "x" * 129}, 400, "ClientError.BadRequest"),
    ({"label": "two\nlines"}, 400, "ClientError.BadRequest"),
    ({"label": "\x00"}, 400, "ClientError.BadRequest"),
    ({"deadline": "tomorrow"}, 400, "ClientError.BadRequest"),
    ({"deadline": "2001-01-01"}, 400, "ClientError.BadRequest"),
    ({"sync_level": 4}, 400, "ClientError.BadRequest"),
    ({"sync_level": "checksum"}, 400, "ClientError.BadRequest"),
    ({"recursive_symlinks": "follow"}, 400, "ClientError.BadRequest"),
    ({"filter_rules": [{"name": ""}]}, 400, "ClientError.BadRequest"),
    ({"perf_cc": 0}, 400, "ClientError.BadRequest"),
    ({"priority": 5}, 403, "PermissionDenied"),
    ({"DATA": [{"source_path": "/../x", "destination_path": "/y"}]}, 400, "ClientError.BadRequest"),
    ({"DATA": [{"source_path": "/x", "destination_path": "~/../y"}]}, 400, "ClientError.BadRequest"),
    ({"DATA": [{"source_path": "/x\x00", "destination_path": "/y"}]}, 400, "ClientError.BadRequest"),
    ({"DATA": [{"source_path": "/x\u202e", "destination_path": "/y"}]}, 400, "ClientError.BadRequest"),
    ({"DATA": [{"source_path": "/" + "x" * 4100, "destination_path": "/y"}]}, 400, "ClientError.BadRequest"),
    ({"DATA": [{"source_path": "/x"}]}, 400, "ClientError.BadRequest"),
    (
        {"DATA": [{"source_path": "/x", "destination_path": "/y", "external_checksum": "?"}]},
        400,
        "ClientError.BadRequest",
    ),
]


async def test_an_invalid_transfer_is_refused(ann, ends):
    for change, status, code in SENSELESS:
        answer = await ann.post(f"{V}/transfer", json=transfer(ends) | change)
        assert (answer.status_code, answer.json()["code"]) == (status, code), change
        assert (await ann.get(f"{V}/task_list")).json()["total"] == 0, change


async def test_both_ends_have_to_be_granted(broker, admin, ann, ends):
    for name in ("near", "far"):
        (rule,) = (await admin.get(f"/broker/v1/collections/{name}/rules")).json()["rules"]
        assert (await admin.delete(f"/broker/v1/collections/{name}/rules/{rule['id']}")).status_code == 204
        await admin.post(f"/broker/v1/collections/{name}/rules", json=EVERYBODY | {"permissions": "r", "path": "/pub/"})
    for items in ([("/pub/a", "/pub/b")], [("/private", "/pub/b")]):
        answer = await ann.post(f"{V}/transfer", json=transfer(ends, *items))
        assert (answer.status_code, answer.json()["code"]) == (403, "EndpointPermissionDenied")
    assert (
        await ann.post(f"{V}/transfer", json=transfer(ends, ("/pub/a", "/b"), destination="disk"))
    ).status_code == 202
    document = {"submission_id": str(uuid4()), "endpoint": ends["near"], "DATA": [{"path": "/pub/a"}]}
    assert (await ann.post(f"{V}/delete", json=document)).status_code == 403
    answer = await ann.post(f"{V}/transfer", json=transfer(ends, destination="catalogue"))
    assert (answer.status_code, answer.json()["code"]) == (403, "EndpointPermissionDenied")


async def test_a_reader_submits_nothing(broker, ends):
    reader = await somebody(broker, "eve", "reader")
    answer = await reader.post(f"{V}/transfer", json=transfer(ends))
    assert (answer.status_code, answer.json()["code"]) == (403, "PermissionDenied")


async def test_an_admin_may_set_the_priority(admin, ends):
    assert (await looked(admin, await submitted(admin, transfer(ends, priority=5))))["priority"] == 5


async def test_a_task_with_folders_of_a_site_is_for_the_workers_there(broker, admin, ann, ends, tmp_path):
    for site in ("CERN", "FNAL"):
        body = {"name": site, "kind": "local", "base": str(tmp_path), "site": site}
        ends[site] = (await admin.put(f"/broker/v1/collections/{site}", json=body)).json()["id"]
        await admin.post(f"/broker/v1/collections/{site}/rules", json=EVERYBODY)
    await submitted(ann, transfer(ends, destination="CERN"))
    await submitted(ann, transfer(ends, source="FNAL"))
    await submitted(ann, transfer(ends))
    async with broker.factory.database.read() as connection:
        rows = await connection.exec_driver_sql("SELECT queue FROM tasks ORDER BY requested_at")
        assert [row[0] for row in rows] == ["CERN", "FNAL", ""]
    answer = await ann.post(f"{V}/transfer", json=transfer(ends, source="FNAL", destination="CERN"))
    assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest")


async def test_the_root_is_not_deleted(ann, ends):
    for path in ("/", "~", "/a/..", ""):
        document = {
            "submission_id": str(uuid4()),
            "endpoint": ends["near"],
            "recursive": True,
            "DATA": [{"path": path}],
        }
        assert (await ann.post(f"{V}/delete", json=document)).status_code == 400, path


@pytest.fixture
async def several(ann, ends):
    """The ids of five tasks of Ann, the last of them finished."""
    numbers = [await submitted(ann, transfer(ends, label=label)) for label in ("alpha", "beta", "100%", None)]
    document = {"submission_id": str(uuid4()), "endpoint": ends["far"], "label": "gone", "DATA": [{"path": "/x"}]}
    numbers.append(await submitted(ann, document))
    assert (await ann.post(f"{V}/task/{numbers[4]}/cancel")).json()["code"] == "Canceled"
    return numbers


FILTERS = [
    ("", [4, 3, 2, 1, 0]),
    ("type:DELETE", [4]),
    ("type:TRANSFER,DELETE", [4, 3, 2, 1, 0]),
    ("status:ACTIVE,INACTIVE", [3, 2, 1, 0]),
    ("status:FAILED/type:TRANSFER", []),
    ("label:~*a", [1, 0]),
    ("label:~AL*", [0]),
    ("label:=beta", [1]),
    ("label:=BETA,b*", []),
    ("label:beta,=alpha", [1, 0]),
    ("label:!~*a,!=gone", [3, 2]),
    ("label:~100%", [2]),
    ("label:~1_0%", []),
    ("request_time:2001-01-01,", [4, 3, 2, 1, 0]),
    ("request_time:,2001-01-01", []),
    ("completion_time:2001-01-01T00:00:00,2100-01-01", [4]),
]


async def test_tasks_are_found_by_filters(ann, several):
    for filter, found in FILTERS:
        page = (await ann.get(f"{V}/task_list", params={"filter": filter, "limit": 1000})).json()
        assert [several.index(each["task_id"]) for each in page["DATA"]] == found, filter
        shown = tuple(page[name] for name in ("total", "length", "limit", "offset"))
        assert shown == (len(found), len(found), 1000, 0), filter


async def test_tasks_are_found_by_id_in_any_order_and_part_by_part(broker, ann, several):
    ids = {"filter": f"task_id:{several[0]},{several[2]}"}
    assert (await ann.get(f"{V}/task_list", params=ids)).json()["total"] == 2
    params = {"limit": 2, "offset": 2, "orderby": "label,request_time ASC", "fields": "task_id,label"}
    page = (await ann.get(f"{V}/task_list", params=params)).json()
    assert (page["total"], len(page["DATA"])) == (5, 2)
    assert set(page["DATA"][0]) == {"DATA_TYPE", "task_id", "label"}
    bob = await somebody(broker, "bob")
    assert (await bob.get(f"{V}/task_list", params=ids)).json()["total"] == 0


WRONG_LISTS = [
    {"filter": "owner:ann"},
    {"filter": "x' OR 1=1--:y"},
    {"filter": "request_time:yesterday,"},
    {"filter": "request_time:2001-01-01,2002-01-01,2003-01-01"},
    {"filter": "label:\x00"},
    {"orderby": "owner"},
    {"orderby": "label; DROP TABLE tasks"},
    {"limit": -1},
    {"limit": 1001},
    {"offset": "x"},
]


async def test_an_invalid_list_of_tasks_is_refused(ann):
    for params in WRONG_LISTS:
        answer = await ann.get(f"{V}/task_list", params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest"), params


async def test_a_task_is_changed_canceled_and_then_over(ann, several):
    number = several[0]
    changed = await ann.put(f"{V}/task/{number}", json={"DATA_TYPE": "task", "label": "new", "deadline": None})
    assert changed.json()["code"] == "Updated"
    assert (await ann.put(f"{V}/task/{number}", json={"deadline": "2033-05-18"})).status_code == 200
    passed = await ann.put(f"{V}/task/{number}", json={"label": "old", "deadline": "2020-05-18"})
    assert (passed.status_code, passed.json()["code"]) == (400, "ClientError.BadRequest")
    assert (await ann.put(f"{V}/task/{number}", json={})).json()["code"] == "Updated"
    reply = await looked(ann, number)
    assert (reply["label"], reply["deadline"], reply["status"]) == ("new", "2033-05-18T00:00:00+00:00", "ACTIVE")
    assert (reply["completion_time"], reply["fatal_error"]) == (None, None)
    assert (await ann.post(f"{V}/task/{number}/cancel")).json()["code"] == "Canceled"
    assert (await ann.post(f"{V}/task/{number}/cancel")).json()["code"] == "TaskComplete"
    reply = await looked(ann, number)
    assert (reply["status"], reply["fatal_error"]["code"]) == ("FAILED", "CANCELED")
    assert (reply["subtasks_canceled"], reply["subtasks_pending"]) == (1, 0)
    assert (reply["is_ok"], reply["nice_status"]) == (None, None)
    assert (await ann.put(f"{V}/task/{number}", json={"label": "x"})).json()["code"] == "Conflict"
    (event,) = (await ann.get(f"{V}/task/{number}/event_list", params={"filter": ""})).json()["DATA"][:1]
    assert (event["code"], event["is_error"]) == ("CANCELED", False)
    only = (await ann.get(f"{V}/task/{number}/event_list", params={"filter": "is_error:0"})).json()
    assert "CANCELED" in {each["code"] for each in only["DATA"]}


async def test_tasks_of_others_are_not_there(broker, several):
    bob = await somebody(broker, "bob")
    for method, path in (
        ("GET", ""),
        ("PUT", ""),
        ("POST", "/cancel"),
        ("GET", "/event_list"),
        ("GET", "/successful_transfers"),
        ("GET", "/skipped_errors"),
        ("GET", "/pause_info"),
    ):
        answer = await bob.request(
            method, f"{V}/task/{several[0]}{path}", json={"label": "mine"} if method == "PUT" else None
        )
        assert (answer.status_code, answer.json()["code"]) == (404, "TaskNotFound"), path


async def test_an_admin_pauses_resumes_and_cancels_tasks(admin, ann, several):
    asked = {"task_id_list": several[:2], "message": "tape is down"}
    assert (await admin.post(f"{V}/endpoint_manager/admin_pause", json=asked)).json()["code"] == "PauseAccepted"
    reply = await looked(ann, several[0])
    assert (reply["is_paused"], reply["nice_status"]) == (True, "PAUSED")
    assert reply["nice_status_details"].startswith("an admin has paused this task: tape is down (")
    info = (await ann.get(f"{V}/task/{several[0]}/pause_info")).json()
    assert (info["source_pause_message"], info["pause_rules"]) == ("tape is down", [])
    paused = await admin.get(f"{V}/endpoint_manager/task_list", params={"filter_is_paused": "true"})
    assert {each["task_id"] for each in paused.json()["DATA"]} == set(several[:2])
    assert (await admin.post(f"{V}/endpoint_manager/admin_resume", json=asked)).json()["code"] == "ResumeAccepted"
    assert (await looked(ann, several[0]))["is_paused"] is False
    done = (await admin.post(f"{V}/endpoint_manager/admin_cancel", json=asked)).json()
    assert done["done"] is True
    assert (await admin.get(f"{V}/endpoint_manager/admin_cancel/{done['id']}")).json()["done"] is True
    reply = await looked(ann, several[1])
    assert (reply["canceled_by_admin"], reply["canceled_by_admin_message"]) == ("BOTH", "tape is down")
    for action in ("pause", "cancel"):
        unsaid = {"task_id_list": several[2:], "message": "n\0"}
        answer = await admin.post(f"{V}/endpoint_manager/admin_{action}", json=unsaid)
        assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest")
    for unsaid in ({"filter_task_id": "n\0"}, {"filter_status": "n\0"}):
        answer = await admin.get(f"{V}/endpoint_manager/task_list", params=unsaid)
        assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest")
    missing = {"task_id_list": [several[2], str(uuid4())], "message": ""}
    assert (await admin.post(f"{V}/endpoint_manager/admin_cancel", json=missing)).json()["code"] == "TaskNotFound"
    assert (await looked(ann, several[2]))["status"] == "ACTIVE"


async def test_an_admin_sees_all_tasks_page_by_page(broker, admin, ends, several):
    bob = await somebody(broker, "bob")
    his = await submitted(bob, transfer(ends, source="disk"))
    seen, key = [], ""
    for _ in range(6):
        page = (await admin.get(f"{V}/endpoint_manager/task_list", params={"limit": 1, "last_key": key})).json()
        seen += [each["task_id"] for each in page["DATA"]]
        key = page["last_key"]
    assert seen == [his, *reversed(several)]
    assert (page["has_next_page"], key) == (False, None)
    for params, found in (
        ({"filter_owner_id": str(identity("bob"))}, {his}),
        ({"filter_endpoint": ends["near"], "filter_endpoint_use": "source"}, set(several[:4])),
        ({"filter_endpoint": ends["near"], "filter_endpoint_use": "destination"}, set()),
        ({"filter_task_id": f"{his},{several[1]}"}, {his, several[1]}),
        ({"filter_status": "FAILED", "filter_endpoint": ends["far"]}, {several[4]}),
        ({"filter_min_faults": 1000}, set()),
    ):
        page = (await admin.get(f"{V}/endpoint_manager/task_list", params=params)).json()
        assert {each["task_id"] for each in page["DATA"]} == found, params
    for path in ("", "/event_list", "/pause_info", "/successful_transfers", "/skipped_errors"):
        assert (await admin.get(f"{V}/endpoint_manager/task/{several[0]}{path}")).status_code == 200
    refused = await bob.get(f"{V}/endpoint_manager/task_list")
    assert (refused.status_code, refused.json()["code"]) == (403, "PermissionDenied")


async def test_an_admin_pauses_collections(broker, admin, ann, ends, several):
    rule = {"DATA_TYPE": "pause_rule", "message": "maintenance", "endpoint_id": ends["disk"], "pause_ls": True}
    made = (await admin.post(f"{V}/endpoint_manager/pause_rule", json=rule)).json()
    assert (made["pause_ls"], made["pause_mkdir"], made["endpoint_display_name"]) == (True, False, "disk")
    refused = await ann.get(f"{V}/operation/endpoint/{ends['disk']}/ls")
    assert (refused.status_code, refused.json()["code"]) == (409, "Conflict.Paused")
    assert "maintenance" in refused.json()["message"]
    mine = (await ann.get(f"{V}/endpoint/{ends['disk']}/my_effective_pause_rule_list")).json()["DATA"]
    assert [each["id"] for each in mine] == [made["id"]]
    unsaid = await admin.post(f"{V}/endpoint_manager/pause_rule", json=rule | {"message": "n\0"})
    assert (unsaid.status_code, unsaid.json()["code"]) == (400, "ClientError.BadRequest")
    path = f"{V}/endpoint_manager/pause_rule/{made['id']}"
    changed = (await admin.put(path, json={"pause_ls": False, "pause_mkdir": True})).json()
    assert (changed["pause_ls"], changed["pause_mkdir"], changed["message"]) == (False, True, "maintenance")
    assert (await admin.get(path)).json() == changed
    assert (await ann.get(f"{V}/operation/endpoint/{ends['disk']}/ls")).status_code == 200
    assert (await admin.get(f"{V}/endpoint_manager/pause_rule_list")).json()["length"] == 1
    others = {"endpoint_id": ends["near"], "identity_id": str(identity("ann")), "message": "you only"}
    assert (await admin.post(f"{V}/endpoint_manager/pause_rule", json=others)).json()["pause_task_transfer_read"]
    info = (await ann.get(f"{V}/task/{several[0]}/pause_info")).json()
    assert [each["message"] for each in info["pause_rules"]] == ["you only"]
    assert (await admin.delete(path)).json()["code"] == "Deleted"
    assert (await admin.get(path)).status_code == 404


async def test_collections_are_searched(broker, admin, ann, ends):
    async def found(client=ann, **params):
        page = (await client.get(f"{V}/endpoint_search", params=params)).json()
        assert page["has_next_page"] is False
        return [each["display_name"] for each in page["DATA"]]

    assert await found() == ["catalogue", "disk", "far", "near"]
    assert await found(filter_fulltext="TAPE rim") == ["near"]
    assert await found(filter_fulltext="tape none") == []
    assert await found(filter_scope="my-endpoints") == []
    assert await found(admin, filter_scope="my-endpoints") == ["catalogue", "disk", "far", "near"]
    assert await found(filter_owner_id=str(identity("a-admin"))) == ["catalogue", "disk", "far", "near"]
    assert await found(filter_owner_id=str(identity("ann"))) == []
    assert await found(filter_entity_type="GCSv5_endpoint") == []
    assert await found(filter_scope="recently-used") == []
    number = await submitted(ann, transfer(ends))
    assert await found(filter_scope="recently-used") == ["far", "near"]
    assert await found(filter_scope="in-use") == ["far", "near"]
    await ann.post(f"{V}/task/{number}/cancel")
    assert await found(filter_scope="in-use") == []
    page = (await ann.get(f"{V}/endpoint_search", params={"limit": 3})).json()
    assert (page["has_next_page"], len(page["DATA"])) == (True, 3)
    page = (await ann.get(f"{V}/endpoint_search", params={"limit": 3, "offset": 3})).json()
    assert (page["has_next_page"], len(page["DATA"])) == (False, 1)


async def test_a_collection_is_described(admin, ann, ends):
    reply = (await ann.get(f"{V}/endpoint/{ends['near']}")).json()
    assert (reply["display_name"], reply["owner_string"], reply["public"]) == ("near", "a-admin", True)
    assert (reply["entity_type"], reply["is_globus_connect"], reply["acl_editable"]) == ("GCSv4_host", False, False)
    assert [each["uri"] for each in reply["DATA"]] == ["ftp://cern-1.example:21"]
    servers = (await ann.get(f"{V}/endpoint/{ends['near']}/server_list")).json()
    assert servers["DATA"] == reply["DATA"]
    assert (await ann.get(f"{V}/endpoint/{ends['disk']}/server_list")).json()["DATA"] == []
    assert (await ann.put(f"{V}/endpoint/{ends['near']}", json={"description": "x"})).status_code == 403
    assert (await admin.put(f"{V}/endpoint/{ends['near']}", json={"description": "x"})).json()["code"] == "Updated"
    refused = await admin.put(f"{V}/endpoint/{ends['near']}", json={"display_name": "y"})
    assert (refused.status_code, "its name cannot be changed" in refused.json()["message"]) == (400, True)
    assert (await ann.get(f"{V}/endpoint/{ends['near']}")).json()["description"] == "x"
    assert (await ann.post(f"{V}/endpoint/{ends['near']}/autoactivate")).status_code == 200


async def test_rules_are_listed_changed_and_taken_back(admin, ends):
    path = f"{V}/endpoint/{ends['far']}"
    rule = {"principal_type": "identity", "principal": str(identity("ann")), "path": "/x/", "permissions": "r"}
    number = (await admin.post(f"{path}/access", json=rule)).json()["access_id"]
    again = await admin.post(f"{path}/access", json={**rule, "permissions": "rw"})
    assert (again.status_code, again.json()["code"]) == (409, "Exists")
    reply = (await admin.get(f"{path}/access/{number}")).json()
    assert {name: reply[name] for name in rule} == rule
    assert (await admin.put(f"{path}/access/{number}", json={"permissions": "rw"})).json()["code"] == "Updated"
    listed = (await admin.get(f"{path}/access_list")).json()["DATA"]
    assert {each["id"]: each["permissions"] for each in listed}[number] == "rw"
    assert len(listed) == 2
    anonymous = {"principal_type": "anonymous", "principal": "whatever", "path": "/", "permissions": "r"}
    assert (await admin.post(f"{path}/access", json=anonymous)).status_code == 201
    assert (await admin.delete(f"{path}/access/{number}")).json()["code"] == "Deleted"
    assert (await admin.get(f"{path}/access/{number}")).json()["code"] == "ClientError.NotFound"


async def test_a_bookmark_outlives_its_collection(admin, ann, ends):
    document = {"name": "mine", "endpoint_id": ends["near"], "path": "/"}
    assert (await ann.post(f"{V}/bookmark", json=document)).status_code == 201
    assert (await admin.delete("/broker/v1/collections/near")).status_code == 204
    assert (await ann.get(f"{V}/bookmark_list")).json()["length"] == 1
    for client, code in ((ann, "EndpointDeleted"), (admin, "EndpointNotFound")):
        answer = await client.get(f"{V}/endpoint/{ends['near']}")
        assert (answer.status_code, answer.json()["code"]) == (404, code)


async def test_bookmarks_are_ones_own(broker, ann, ends):
    document = {"name": " mine ", "endpoint_id": ends["near"], "path": "/~/data"}
    made = (await ann.post(f"{V}/bookmark", json=document)).json()
    assert (made["name"], made["path"], made["pinned"]) == ("mine", "/data/", False)
    assert (await ann.post(f"{V}/bookmark", json=document)).json()["code"] == "Conflict"
    other = (await ann.post(f"{V}/bookmark", json=document | {"name": "other"})).json()
    path = f"{V}/bookmark/{made['id']}"
    assert (await ann.put(path, json={"name": "other"})).json()["code"] == "Conflict"
    assert (await ann.put(path, json={"name": "yours"})).json()["name"] == "yours"
    assert [each["name"] for each in (await ann.get(f"{V}/bookmark_list")).json()["DATA"]] == ["other", "yours"]
    bob = await somebody(broker, "bob")
    assert (await bob.get(path)).json()["code"] == "BookmarkNotFound"
    assert (await bob.delete(path)).json()["code"] == "BookmarkNotFound"
    assert (await ann.delete(path)).json()["code"] == "Deleted"
    assert (await ann.get(path)).json()["code"] == "BookmarkNotFound"
    for name in ("", "x" * 129, "a\nb", "\x00"):
        assert (await ann.post(f"{V}/bookmark", json=document | {"name": name})).status_code == 400
    assert (await ann.get(f"{V}/bookmark/{other['id']}")).status_code == 200


@pytest.fixture
async def folder(ends, tmp_path):
    """Return the entries of the local directory."""
    disk = tmp_path / "disk"
    for name, size in (("b.txt", 3), ("a.txt", 1), (".hidden", 0), ("c.dat", 2), ("new\nline", 0)):
        (disk / name).write_bytes(b"x" * size)
    (disk / "dir").mkdir()
    (disk / "ünï <b>.txt").touch()
    return f"{V}/operation/endpoint/{ends['disk']}"


LISTINGS = [
    ({}, [".hidden", "a.txt", "b.txt", "c.dat", "dir", "new\nline", "ünï <b>.txt"]),
    ({"show_hidden": 0}, ["a.txt", "b.txt", "c.dat", "dir", "new\nline", "ünï <b>.txt"]),
    ({"filter": "name:~*.txt"}, ["a.txt", "b.txt", "ünï <b>.txt"]),
    ({"filter": "name:!~*.*"}, ["dir", "new\nline"]),
    ({"filter": "name:a.txt"}, ["a.txt"]),
    ({"filter": "name:=a.txt,b.txt"}, ["a.txt", "b.txt"]),
    ({"filter": ["type:dir", "name:c.dat"]}, ["c.dat", "dir"]),
    ({"filter": "type:file/size:>1"}, ["b.txt", "c.dat"]),
    ({"filter": "type:file/size:2"}, ["c.dat"]),
    ({"filter": "last_modified:2100-01-01,"}, []),
    ({"filter": "name:~*.txt,~c*/type:file", "orderby": "size DESC", "limit": 2}, ["b.txt", "c.dat"]),
    ({"orderby": "type,name DESC", "limit": 2}, ["dir", "ünï <b>.txt"]),
    ({"offset": 5}, ["new\nline", "ünï <b>.txt"]),
    ({"limit": 0}, []),
]


@pytest.mark.parametrize("spare", [operations.SPARE, -300_000])
async def test_a_folder_is_listed_as_asked(ann, folder, monkeypatch, spare):
    """This includes listings of which only the entries of the page are kept."""
    monkeypatch.setattr(operations, "SPARE", spare)
    monkeypatch.setattr(local, "BATCH", 2)
    for params, names in LISTINGS:
        page = (await ann.get(f"{folder}/ls", params=params)).json()
        assert [each["name"] for each in page["DATA"]] == names, params
        assert (page["length"], page["path"]) == (len(names), "/"), params


WRONG_LISTINGS = [
    {"path": "/../x"},
    {"path": "/\x00"},
    {"path": "/" + "x" * 4097},
    {"filter": "size:big"},
    {"filter": "owner:ann"},
    {"orderby": "colour"},
    {"limit": 100_001},
    {"offset": 200_001},
]


async def test_an_invalid_listing_is_refused(ann, folder):
    for params in WRONG_LISTINGS:
        answer = await ann.get(f"{folder}/ls", params=params)
        assert (answer.status_code, answer.json()["code"]) == (400, "ClientError.BadRequest"), params


async def test_names_that_are_no_text_are_listed(ann, folder, tmp_path):
    (tmp_path / "disk" / b"\xff.txt".decode(errors="surrogateescape")).touch()
    names = [each["name"] for each in (await ann.get(f"{folder}/ls")).json()["DATA"]]
    assert "?.txt" in names


async def test_folders_are_made_looked_at_and_renamed(ann, folder, tmp_path):
    assert (await ann.post(f"{folder}/mkdir", json={"DATA_TYPE": "mkdir", "path": "~/new/"})).status_code == 202
    assert (tmp_path / "disk" / "new").is_dir()
    renamed = await ann.post(f"{folder}/rename", json={"old_path": "/new/", "new_path": "/dir/old"})
    assert renamed.json()["code"] == "FileRenamed"
    reply = (await ann.get(f"{folder}/stat", params={"path": "/dir/old"})).json()
    assert (reply["DATA_TYPE"], reply["type"], reply["name"]) == ("file", "dir", "old")
    for path, body, status, code in (
        ("mkdir", {"path": "/dir"}, 502, "ExternalError.MkdirFailed.Exists"),
        ("mkdir", {"path": "/no/such"}, 404, "ClientError.NotFound"),
        ("mkdir", {"path": "/a.txt/x"}, 502, "ExternalError.MkdirFailed.NotDirectory"),
        ("rename", {"old_path": "/none", "new_path": "/x"}, 404, "ClientError.NotFound"),
        ("rename", {"old_path": "/a.txt", "new_path": "/dir"}, 502, "ExternalError.RenameFailed.Exists"),
        ("rename", {"old_path": "/a.txt", "new_path": "/../x"}, 400, "ClientError.BadRequest"),
    ):
        answer = await ann.post(f"{folder}/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert str(tmp_path) not in answer.text
    for path, status, code in (("/none", 404, "NotFound"), ("/dir/..", 200, None), ("/a.txt/", 404, "NotFound")):
        answer = await ann.get(f"{folder}/stat", params={"path": path})
        assert (answer.status_code, answer.json().get("code")) == (status, code)
    listed = await ann.get(f"{folder}/ls", params={"path": "/a.txt"})
    assert (listed.status_code, listed.json()["code"]) == (502, "ExternalError.DirListingFailed.NotDirectory")


async def test_the_catalogue_is_a_collection(ann, ends):
    where = f"{V}/operation/endpoint/{ends['catalogue']}"
    names = [each["name"] for each in (await ann.get(f"{where}/ls", params={"path": "/run1/2024"})).json()["DATA"]]
    assert names == ["a.root"]
    reply = (await ann.get(f"{where}/stat", params={"path": "/run1/2024/a.root"})).json()
    assert (reply["type"], reply["size"]) == ("file", 1_000_000_000)
    assert (await ann.post(f"{where}/mkdir", json={"path": "/x"})).status_code == 403


async def test_every_failure_has_globuss_shape(broker, ann, admin, monkeypatch):
    async def fail(*_: object) -> None:
        raise RuntimeError("secret words")

    nobody, wrong = broker.with_headers({}), broker.with_headers({"Authorization": "Bearer cogetb_wrong"})
    answers = [
        (await nobody.get(f"{V}/task_list"), 401, "ClientError.AuthenticationFailed"),
        (await wrong.get(f"{V}/task_list"), 401, "ClientError.AuthenticationFailed"),
        (await ann.get(f"{V}/none"), 404, "ClientError.NotFound"),
        (await ann.get(V), 404, "ClientError.NotFound"),
        (await ann.get("/v2/tunnels"), 404, "NotOffered"),
        (await ann.get("/v2/none"), 404, "ClientError.NotFound"),
        (await ann.get("/v2"), 404, "ClientError.NotFound"),
        (await ann.patch(f"{V}/task_list"), 405, "ClientError.MethodNotAllowed"),
        (await ann.get(f"{V}/task/none"), 400, "ClientError.BadRequest"),
        (await ann.post(f"{V}/transfer", content=b"{"), 400, "ClientError.BadRequest"),
        (await ann.post(f"{V}/transfer", content=b" " * (65 << 20)), 413, "ClientError.RequestTooLarge"),
    ]
    monkeypatch.setattr(type(broker.factory.tasks), "page", fail)
    answers.append((await ann.get(f"{V}/task_list"), 500, "InternalError"))
    for answer, status, code in answers:
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert set(answer.json()) == {"code", "message", "request_id", "resource"}
        assert answer.json()["resource"] == answer.request.url.path
        assert "secret" not in answer.text
    assert set((await ann.get(f"{V}/broker/v1/none")).json()) == {"error"}  # our own interface has its own


async def test_too_many_requests_get_a_retry_time(broker, ann):
    broker.app.state.buckets["ann"] = (0.0, time.monotonic() + 60)
    answer = await ann.get(f"{V}/submission_id")
    assert (answer.status_code, answer.json()["code"]) == (429, "ClientError.TooManyRequests")
    assert answer.headers["Retry-After"] == "1"
