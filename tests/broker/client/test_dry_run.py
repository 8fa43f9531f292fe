"""Dry runs: they list what a task would copy, link and delete, and change nothing."""

import json
from pathlib import Path

import pytest

from tests.broker.client.conftest import Lab


def tree(root: Path) -> dict[str, tuple[object, ...]]:
    """Return everything below a directory: types, contents and modification times."""
    found: dict[str, tuple[object, ...]] = {}
    for each in sorted(root.rglob("*")):
        status = each.lstat()
        what = each.readlink() if each.is_symlink() else each.read_bytes() if each.is_file() else None
        found[str(each.relative_to(root))] = (status.st_mode, what, status.st_mtime_ns)
    return found


@pytest.fixture
def mirror(lab: Lab) -> Lab:
    """A directory and an old copy of it: one file is new, one changed, one equal; some exist only in the copy."""
    for root, files in (
        (lab.one / "run", {"new": b"new", "changed": b"changed", "same": b"same", "deep/new": b"more"}),
        (lab.two / "copy", {"changed": b"old", "same": b"same", "extra": b"x", "old/a": b"a", "old/b/c": b"c"}),
    ):
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    return lab


WORDS = ("submit", "-r", "--sync", "size", "--delete", "one:/run/", "two:/copy")
COPIED = {"/copy/new", "/copy/changed", "/copy/deep/new"}
DELETED = {"/copy/extra", "/copy/old", "/copy/old/a", "/copy/old/b", "/copy/old/b/c"}


def test_a_dry_run_lists_copies_and_deletions_and_changes_nothing(mirror):
    before = tree(mirror.one), tree(mirror.two)
    done = mirror.run(*WORDS, "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert {line.partition(" to ")[2] for line in lines if line.startswith("copy /run/")} == COPIED
    assert {line.removeprefix("delete ") for line in lines if line.startswith("delete ")} == DELETED
    assert len(lines) == len(COPIED) + len(DELETED)
    assert "would copy 3 files" in done.stderr
    assert (tree(mirror.one), tree(mirror.two)) == before


def test_a_task_does_what_its_dry_run_listed(mirror):
    planned = json.loads(mirror.run(*WORDS, "--dry-run", "--json").stdout)
    there = {f"/copy/{name}": what for name, what in tree(mirror.two / "copy").items()}
    assert mirror.run(*WORDS, "--wait").returncode == 0
    now = {f"/copy/{name}": what for name, what in tree(mirror.two / "copy").items()}
    assert {each["destination"] for each in planned if each["kind"] == "delete"} == there.keys() - now.keys()
    files = {name for name, (_, what, _) in now.items() if what is not None and there.get(name) != now[name]}
    assert {each["destination"] for each in planned if each["kind"] == "copy"} == files
    assert sum(each["size"] for each in planned) == len(b"newchangedmore")
    assert (mirror.two / "copy" / "deep" / "new").read_bytes() == b"more"


def test_a_dry_run_does_not_create_the_destination(mirror):
    done = mirror.run("submit", "-r", "--delete", "--dry-run", "one:/run/", "two:/nowhere/deep")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 4), done.stderr
    assert not (mirror.two / "nowhere").exists()


def test_a_finished_dry_run_is_shown_as_a_dry_run(mirror):
    items = [{"source": "/copy", "recursive": True}]
    submission = {
        "submission_id": "5f0c1b3e-8d0a-4b52-9d3c-3b0d6f1f2a77",
        "kind": "DELETE",
        "source": "two",
        "items": items,
    }
    options = {"recursive": True, "dry_run": True}
    number = mirror.admin.post("/broker/v1/tasks", json={**submission, "options": options}).json()["id"]
    mirror.environment["COGET_BROKER_TOKEN"] = mirror.admin.headers["Authorization"].removeprefix("Bearer ")
    assert mirror.run("watch", number).returncode == 0
    task = mirror.task(number)
    assert (task["status"], task["options"]["dry_run"], task["files_transferred"]) == ("SUCCEEDED", True, 0)
    assert mirror.admin.get(f"/broker/v1/tasks/{number}/files").json()["files"] == []
    planned = mirror.admin.get(f"/broker/v1/tasks/{number}/planned").json()["files"]
    assert {each["source"] for each in planned} >= {"/copy", "/copy/same", "/copy/old/b/c"}
    assert (mirror.two / "copy" / "old" / "b" / "c").exists()
    again = {
        **submission,
        "submission_id": "5f0c1b3e-8d0a-4b52-9d3c-3b0d6f1f2a78",
        "items": [{"source": "/copy/extra"}],
    }
    real = mirror.admin.post("/broker/v1/tasks", json=again).json()["id"]
    assert mirror.admin.get(f"/broker/v1/tasks/{real}/planned").status_code == 422
