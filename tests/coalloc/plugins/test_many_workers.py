"""Very many workers at once on one machine, as of Dask or HTCondor: they share connections, and none fails."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc.plugins.classads import write_ad
from tests.support.effort import effort
from tests.support.fetching import random_file
from tests.support.listening import connections
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.long

READING, TRANSFERRING = effort(12, 200), effort(40, 200)
"""Numbers of workers: even the fewest would use more connections than permitted if they shared none."""
SIZE = 8 << 20
MOST_CONNECTIONS = 32
"""The limit of coget's processes on one machine to one server."""
MOST_BYTES = 150 << 20
"""Maximum memory of one worker, of which the modules take more than half."""
WORKER = """
import hashlib, json, os, random, resource, sys
from pathlib import Path

def read(number):
    import fsspec
    from coalloc.plugins.fsspec_system import CogetFileSystem
    chance, files = random.Random(number), CogetFileSystem()
    starts = [chance.randrange(given["size"] - 65536) for _ in range(8)]
    data = files.cat_ranges([given["name"]] * 8, starts, [start + 65536 for start in starts], on_error="raise")
    content = Path(given["content"]).read_bytes()
    assert data == [content[start : start + 65536] for start in starts]
    with files.open(given["name"]) as file:
        file.seek(starts[0])
        assert file.read(300_000) == content[starts[0] : starts[0] + 300_000]

def transfer(number):
    from coalloc.plugins.condor import _run
    folder = Path(given["folder"], str(number))
    os.chdir(folder)
    assert _run(["-infile", "in", "-outfile", "out"]) == 0, (folder / "out").read_text()
    assert (folder / "x").read_bytes() == Path(given["content"]).read_bytes()

given = json.loads(sys.argv[1])
work = {"read": read, "transfer": transfer}[given["work"]]
import fsspec, coalloc.api, coalloc.plugins.fsspec_readers, coalloc.plugins.condor_errors, coalloc.plugins.classads
begin, go = os.pipe()
workers = []
for number in range(given["workers"]):
    if worker := os.fork():
        workers.append(worker)
        continue
    os.close(go)
    os.read(begin, 1)  # until all workers are there
    try:
        work(number)
    except BaseException as error:
        print(f"worker {number}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)
os.close(go)
ended = [os.wait4(worker, 0) for worker in workers]
print(json.dumps({"failed": sum(status != 0 for _, status, _ in ended),
                  "most": max(usage.ru_maxrss * 1024 for _, _, usage in ended)}))
"""


def crowd(work: str, workers: int, web: list[Nginx], folder: Path) -> None:
    """Run the workers, and check them and what they use."""
    given = {
        "work": work,
        "workers": workers,
        "name": "|".join(server.url("x") for server in web),
        "content": str(web[0].root / "x"),
        "size": SIZE,
        "folder": str(folder),
    }
    environment = {**os.environ, "HOME": "/proc/none", "COGET_HISTORY": "off", "TMPDIR": str(folder)}
    command = [sys.executable, "-c", WORKER, json.dumps(given)]
    with (
        (folder / "errors").open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True, start_new_session=True
        ) as process,
    ):
        most = [0, 0]

        def ended() -> bool:
            most[:] = [max(each, connections(server.port)) for each, server in zip(most, web, strict=True)]
            return process.poll() is not None

        try:
            wait_until(ended, 5 * PATIENCE)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
        assert process.stdout is not None
        found = json.loads(process.stdout.read() or "{}")
    assert found.get("failed") == 0, (folder / "errors").read_text()[-3000:]
    assert found["most"] < MOST_BYTES
    assert 0 < max(most) <= MOST_CONNECTIONS


@pytest.fixture
def web(tmp_path):
    with Nginx(tmp_path / "web0", tmp_path / "run0") as one, Nginx(tmp_path / "web1", tmp_path / "run1") as two:
        for server in (one, two):
            random_file(server.root / "x", SIZE)
        yield [one, two]


def test_workers_read_by_the_file_system(web, tmp_path):
    crowd("read", READING, web, tmp_path)


def test_workers_are_calls_of_htcondors_plugin(web, tmp_path):
    for number in range(TRANSFERRING):
        (tmp_path / str(number)).mkdir()
        ad = {"LocalFileName": "x", "Url": "coget://" + "|".join(server.url("x") for server in web)}
        (tmp_path / str(number) / "in").write_text(write_ad(ad))
    crowd("transfer", TRANSFERRING, web, tmp_path)


async def test_one_call_reads_very_many_ranges(web, registered):
    content = (web[0].root / "x").read_bytes()
    starts = [random.Random(seed).randrange(SIZE) for seed in range(20_000)]
    ends = [start + 100 for start in starts]
    name = "|".join(server.url("x") for server in web)
    files = registered(asynchronous=True, skip_instance_cache=True)
    found = await files._cat_ranges([name] * len(starts), starts, ends, on_error="raise")
    assert found == [content[start:end] for start, end in zip(starts, ends, strict=True)]
    assert max(connections(server.port) for server in web) <= MOST_CONNECTIONS
    await files.aclose()
