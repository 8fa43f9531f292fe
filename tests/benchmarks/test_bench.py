"""The benchmark on a real WAN, with a file that is too small to measure speed."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.benchmarks.bench import Bench, in_memory
from tests.benchmarks.field import Field
from tests.benchmarks.plan import Plan
from tests.benchmarks.race import Run
from tests.benchmarks.rivals import PEERS, RIVALS
from tests.benchmarks.scenarios import SCENARIOS, Event

pytestmark = pytest.mark.wan

SIZE = 4_000_000
HOUSE = Path(__file__).parents[2]
HOLD = """
import time
from tests.benchmarks.bench import in_memory
with in_memory() as folder:
    print(folder, flush=True)
    time.sleep(60)
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 80), timeout=2)"


def race(name: str, rivals: Sequence[str], folder: Path) -> dict[str, Run]:
    bench = Bench(replace(SCENARIOS[name], size=SIZE), "cubic", [RIVALS[rival] for rival in rivals], folder)
    return dict(bench.round(seed=1))


def test_every_program_fetches_the_file_and_wire_bytes_are_counted(tmp_path: Path):
    runs = race("shared", PEERS, tmp_path)
    assert {name: run.said for name, run in runs.items() if run.outcome not in ("ok", "invalid")} == {}
    assert set(runs) == set(PEERS)
    assert all(run.moved >= SIZE and run.cpu > 0 for run in runs.values())
    assert all(set(run.samples[-1].sent) == {"s1", "s2"} for run in runs.values())
    assert sum(copy.end - copy.start for own in runs["coget"].copies.values() for copy in own) >= SIZE


def test_two_kinds_of_servers_and_a_client_that_is_killed(tmp_path: Path):
    assert race("mixed", ["coget"], tmp_path)["coget"].outcome in ("ok", "invalid")
    rerun = race("rerun", ["coget"], tmp_path)["coget"]
    assert rerun.outcome in ("ok", "invalid")
    assert rerun.moved >= SIZE


def test_events_happen_to_the_network(tmp_path: Path):
    events = (Event(0.1, "s1", "kill"), Event(0.2, "s2", "hole"), Event(0.3, "s3", "rate", 0.1))
    plan = Plan(replace(SCENARIOS["hetero"], size=SIZE, events=events), "cubic")
    with Field(plan, dict.fromkeys(plan.sources, "http"), tmp_path) as field:
        assert [why(field, host) for host in ("s1", "s2", "s3")] == ["", "", ""]
        for _, happen in field.events():
            happen()
        assert [why(field, host) for host in ("s1", "s2", "s3")] == ["ConnectionRefusedError", "TimeoutError", ""]


def why(field: Field, host: str) -> str:
    """Connect to a host's server from the client; return the name of the error, or nothing."""
    address = field.url(host, "x").split("/")[2].split(":")[0]
    done = subprocess.run(
        field.command([sys.executable, "-c", CONNECT, address]), capture_output=True, text=True, timeout=30
    )
    return done.stderr.strip().splitlines()[-1].split(":")[0] if done.returncode else ""


def test_leftovers_of_killed_runs_in_memory_are_removed():
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=HOUSE) as process:
        left = Path(process.stdout.readline().strip())
        process.kill()
    assert left.exists()
    with in_memory() as folder:
        assert not left.exists()
        assert folder.exists()
    assert not folder.exists()
