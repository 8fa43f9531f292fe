"""Leftovers of a killed collect job, here and at a relay: the next job removes them and says so, and nothing else."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc.collect.runtime.partial_name_records import PartialNames
from coalloc.util.partial_names import derived
from tests.support.coget import coget
from tests.support.fetching import random_file
from tests.support.waiting import PATIENCE

JOB = """
import asyncio, sys
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging import StagingArea
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.engine.base import EngineOptions
from coalloc.history.values import source_key
from coalloc.util.dialer import DirectDialer

async def job():
    url, folder = sys.argv[1:]
    area = StagingArea(CollectServer(source_key(url), url, EngineOptions(DirectDialer())), folder, "run",
                       StagingRecords.open())
    await area.make()
    print(area.piece(1), flush=True)
    sys.stdin.read()

asyncio.run(job())
"""
"""A job that has made a staging area, and says the path of a piece in it."""

WRITER = """
import asyncio, sys
from coalloc.collect.runtime.destination import ServerDestination
from coalloc.collect.runtime.item import CollectItem
from coalloc.collect.runtime.server import CollectServer
from coalloc.collect.runtime.staging_records import StagingRecords
from coalloc.engine.base import EngineOptions
from coalloc.history.values import source_key
from coalloc.util.dialer import DirectDialer

async def job():
    url, folder = sys.argv[1:]
    server = CollectServer(source_key(url), url, EngineOptions(DirectDialer()))
    destination = ServerDestination(server, folder, False, StagingRecords.open())
    item = CollectItem("sub/x", 5000, {})
    await destination.begin(item)
    print(destination.sink(item), flush=True)
    if sys.stdin.read():
        await destination.close()

asyncio.run(job())
"""
"""A job that is about to write a file at a server, and says its path; it ends well if it is told to."""


@pytest.fixture
def server(start_gridftp, tmp_path):
    made = start_gridftp(tmp_path / "export")
    (made.root / "run").mkdir()
    random_file(made.root / "run" / "x", 5000)
    return made


@pytest.fixture
def staged(server, tmp_path):
    """A job that runs, and the path of a piece that it has staged."""
    words = [sys.executable, "-c", JOB, server.url(""), str(server.root)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    environment = {"COGET_HISTORY": str(tmp_path / "history"), "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(words, env=environment, text=True, **streams) as job:
        piece = Path(job.stdout.readline().rstrip())
        piece.write_bytes(b"staged")
        yield job, piece
        job.kill()


def run(server, tmp_path, *options):
    """Run `coget collect` as this user."""
    words = ["collect", *options, server.url("run") + "/", "--to", "here"]
    done = coget(words, tmp_path, COGET_HISTORY=str(tmp_path / "history"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "x").read_bytes() == (server.root / "run" / "x").read_bytes()
    return done


def collect(server, tmp_path):
    return json.loads(run(server, tmp_path, "--json").stdout)


def kill(job):
    job.kill()
    job.wait(PATIENCE)


def test_the_staging_area_of_a_killed_job_is_removed_by_the_next_one_and_named(server, staged, tmp_path):
    job, piece = staged
    assert collect(server, tmp_path)["cleared"] == [], "the job lives"
    assert piece.exists()
    kill(job)
    assert [where.endswith(str(piece.parent)) for where in collect(server, tmp_path)["cleared"]] == [True]
    assert not piece.parent.exists()
    assert collect(server, tmp_path)["cleared"] == []


@pytest.mark.parametrize("name", ["x", "0123456789abcdef0123456789abcdef", "\udcff"], ids=["short", "hex", "no text"])
def test_files_of_others_in_it_stay_and_are_named_once(server, staged, tmp_path, name):
    job, piece = staged
    kill(job)
    (piece.parent / name).write_bytes(b"of somebody")
    document = collect(server, tmp_path)
    assert document["cleared"] == []
    assert [each["where"].endswith(str(piece.parent)) for each in document["left"]] == [True]
    assert [path.name for path in piece.parent.iterdir()] == [name]
    assert collect(server, tmp_path)["left"] == []


def test_a_directory_in_its_place_is_not_emptied(server, staged, tmp_path):
    job, piece = staged
    kill(job)
    piece.parent.rename(server.root / "away")
    piece.parent.mkdir()
    piece.write_bytes(b"of somebody")
    document = collect(server, tmp_path)
    assert "is not the directory that was created there" in document["left"][0]["reason"]
    assert piece.read_bytes() == b"of somebody"


def test_a_lock_beside_a_complete_file_is_removed_and_named(server, tmp_path):
    """The job was killed after it gave the file its name, and before it removed the directory."""
    collect(server, tmp_path)
    number = PartialNames(tmp_path / "history").number(tmp_path / "here", ["x"])
    left = tmp_path / "here" / derived(number, "x")
    left.mkdir(0o700)
    (left / "lock").touch(0o600)
    assert f"removed, as a run that was killed had left it: here/{left.name}\n" in run(server, tmp_path).stderr
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["x"]


@pytest.mark.parametrize("end", ["killed", "closed"])
def test_the_partial_files_of_a_killed_job_at_a_server_are_removed_by_the_next_one_and_named(
    server, start_gridftp, tmp_path, end
):
    there, environment = start_gridftp(tmp_path / "there"), {"COGET_HISTORY": str(tmp_path / "history")}
    (server.root / "run/sub").mkdir()
    (server.root / "run/x").rename(server.root / "run/sub/x")
    words = [sys.executable, "-c", WRITER, there.url(""), f"{there.root}/to"]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, env=environment | {"PYTHONPATH": ":".join(sys.path)}, text=True, **streams) as job:
        left = Path(job.stdout.readline().rstrip())
        left.write_bytes(b"partial")
        other = left.with_name(f"{left.name[:-1]}{'0' if left.name[-1] != '0' else '1'}")
        other.write_bytes(b"of somebody")
        collecting = ["collect", "--json", server.url("run") + "/", "--to", there.url("to")]
        alive = json.loads(coget(collecting, tmp_path, **environment).stdout)
        assert (alive["cleared"], left.exists()) == ([], True)
        job.communicate("end" if end == "closed" else "")
    done = json.loads(coget(collecting, tmp_path, **environment).stdout)
    assert [where.endswith(str(left)) for where in done["cleared"]] == ([True] if end == "killed" else [])
    assert sorted(path.name for path in left.parent.iterdir()) == sorted([other.name, "x"])
    assert json.loads(coget(collecting, tmp_path, **environment).stdout)["cleared"] == []
