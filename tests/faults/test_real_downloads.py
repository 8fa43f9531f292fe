"""Whole downloads from real GridFTP servers by the real command, with faults.

Servers are killed and paused, coget is killed, interrupted and run twice, and a disk fills up.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from coalloc.schedule.policies import NAMES
from tests.support.coget import coget, coget_process
from tests.support.effort import effort
from tests.support.gridftp import GridFTPServer
from tests.support.mounts import small_tmpfs
from tests.support.waiting import PATIENCE, wait_until

MIB = 1 << 20
SIZE = 64 * MIB
HELD = ("--limit-rate", "40MB/s")
"""Options with which the middle of a file of `SIZE` lasts long enough for a fault."""


def make_file(path: Path, size: int, seed: int = 1) -> bytes:
    """Write a file without equal blocks, quickly."""
    block = random.Random(seed).randbytes(MIB)
    content = b"".join(i.to_bytes(8) + block[8:] for i in range(size // MIB)) + block[: size % MIB]
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return content


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[GridFTPServer]]:
    with ExitStack() as stack:
        yield [stack.enter_context(GridFTPServer(tmp_path / "export", f"127.0.0.{i}")) for i in (2, 3, 4)]


def urls(servers: list[GridFTPServer], name: str) -> list[str]:
    return [server.url(name) for server in servers]


def written(target: Path) -> int:
    """Return the bytes of a partial file that are on disk."""
    data = target.with_name(target.name + ".coget") / "data"
    try:
        return data.stat().st_blocks * 512
    except FileNotFoundError:
        return 0


def wait_for_bytes(process: "subprocess.Popen[str]", target: Path, count: int) -> None:
    """Wait until more than `count` bytes of a partial file are on disk. Look often, as coget goes on meanwhile."""
    end = time.monotonic() + PATIENCE
    while written(target) <= count:
        assert process.poll() is None, f"coget ended with status {process.returncode} before {count} bytes were seen"
        assert time.monotonic() < end, f"{count} bytes did not come"
        time.sleep(0.01)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("size", [0, 1, 5 * MIB + 7])
def test_every_scheme_byte_for_byte(servers, tmp_path, strategy, size):
    name = "spaces, % and a plus+ #1.bin"
    content = make_file(tmp_path / "export" / name, size)
    done = coget([*urls(servers, name), "--strategy", strategy, "--json", "--quiet", "-o", "here"], tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (tmp_path / "here").read_bytes() == content
    assert report["checksum"]["verified"]
    assert sum(source["bytes"] for source in report["sources"]) == size


@pytest.mark.sampled(2)
@pytest.mark.parametrize("strategy", ["brute", "conservative", "adaptive"])
def test_a_server_that_is_killed_costs_time_not_data(servers, tmp_path, strategy):
    content = make_file(tmp_path / "export" / "big", SIZE)
    words = [*urls(servers, "big"), *HELD, "--strategy", strategy, "--json", "--quiet", "-o", "here"]
    with coget_process(words, tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 8 * MIB)
        servers[0].kill()
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert (tmp_path / "here").read_bytes() == content
    errors = {source["url"]: source["error"] for source in json.loads(out)["sources"]}
    assert [url for url, error in errors.items() if error] == [servers[0].url("big")]


def test_a_server_that_falls_silent_costs_time_not_data(servers, tmp_path):
    content = make_file(tmp_path / "export" / "big", SIZE)
    with coget_process([*urls(servers, "big"), *HELD, "--quiet", "-o", "here"], tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 8 * MIB)
        servers[1].pause()
        _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert (tmp_path / "here").read_bytes() == content


def test_fetched_data_stays_when_all_servers_die(servers, tmp_path):
    content = make_file(tmp_path / "export" / "big", SIZE)
    words = [servers[0].url("big"), *HELD, "--json", "--quiet", "-o", "here"]
    with coget_process(words, tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 8 * MIB)
        servers[0].kill()
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 5
    assert json.loads(out)["error"]["code"] == "transfer_failed"
    assert not (tmp_path / "here").exists()
    done = coget([servers[1].url("big"), "--json", "--quiet", "-o", "here", "--checksum", md5(content)], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here").read_bytes() == content


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


@pytest.mark.long
def test_killed_at_any_point_it_goes_on_from_there(servers, tmp_path):
    """A killed run wastes at most 2 % of the bytes, and the result is right."""
    size = 200 * MIB
    content = make_file(tmp_path / "export" / "big", size)
    target, choose = tmp_path / "here", random.Random(4)
    words = [*urls(servers, "big"), "--json", "--quiet", "-o", "here"]
    for _ in range(effort(4, 50)):
        moved = run_and_kill(words, tmp_path, target, choose.uniform(0, size))
        done = coget(words, tmp_path)
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        if moved is not None:
            assert moved + size - report["resumed_bytes"] <= 1.02 * size
        assert target.read_bytes() == content
        assert not target.with_name("here.coget").exists()
        target.unlink()


def run_and_kill(words: list[str], home: Path, target: Path, point: float) -> int | None:
    """Kill coget when about `point` bytes are here; return how many it had written, or None if it was done before."""
    with coget_process(words, home) as process:
        wait_until(lambda: written(target) >= point or process.poll() is not None)
        if process.poll() is not None:
            return None
        process.send_signal(signal.SIGSTOP)
        io = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
        process.kill()
        process.communicate()
    return int(io["wchar"]) if (target.with_name(target.name + ".coget")).exists() else None


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_cleanly(servers, tmp_path, number):
    content = make_file(tmp_path / "export" / "big", SIZE)
    words = [*urls(servers, "big"), "--json", "--quiet", "-o", "here"]
    with coget_process([*words, *HELD], tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 8 * MIB)
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert "Traceback" not in err
    document = json.loads(out)
    assert document["error"]["code"] == "interrupted"
    assert sum(source["bytes"] for source in document["sources"]) > 8 * MIB
    done = coget(words, tmp_path)
    assert json.loads(done.stdout)["resumed_bytes"] > 8 * MIB
    assert (tmp_path / "here").read_bytes() == content


def test_a_second_coget_on_one_target_stops_with_8(servers, tmp_path):
    make_file(tmp_path / "export" / "big", SIZE)
    words = [servers[0].url("big"), *HELD, "--quiet", "-o", "here"]
    with coget_process(words, tmp_path) as process:
        wait_for_bytes(process, tmp_path / "here", 0)
        process.send_signal(signal.SIGSTOP)
        second = coget(words, tmp_path)
        process.send_signal(signal.SIGCONT)
        process.communicate(timeout=PATIENCE)
    assert second.returncode == 8
    assert "another coget" in second.stderr
    assert process.returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_too_small_is_seen_before_it_starts(servers, tmp_path):
    make_file(tmp_path / "export" / "big", 20 * MIB)
    with small_tmpfs(tmp_path / "small", 8 * MIB) as small:
        done = coget([servers[0].url("big"), "--quiet", "-o", str(small / "here")], tmp_path)
        assert done.returncode == 6
        assert "free" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_disk_that_fills_up_leaves_a_state_to_go_on_from(servers, tmp_path):
    content = make_file(tmp_path / "export" / "big", SIZE)
    words = [*urls(servers, "big"), "--json", "--quiet", "-o"]
    with small_tmpfs(tmp_path / "small", 80 * MIB) as small:
        with coget_process([*words, str(small / "here"), *HELD], tmp_path) as process:
            wait_for_bytes(process, small / "here", 0)
            process.send_signal(signal.SIGSTOP)
            with suppress(OSError):  # it is full now
                (small / "hog").write_bytes(bytes(80 * MIB))
            process.send_signal(signal.SIGCONT)
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 6, err
        assert json.loads(out)["error"]["code"] == "local_disk"
        (small / "hog").unlink()
        done = coget([*words, str(small / "here")], tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["resumed_bytes"] > 0
        assert (small / "here").read_bytes() == content
