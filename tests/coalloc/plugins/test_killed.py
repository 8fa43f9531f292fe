"""Programs of hosts that are killed in the middle of a job, and the job's next run: right bytes, and nothing left."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coalloc.plugins.classads import write_ad
from tests.support.effort import effort
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.long

SIZE = 4_000_000
Command = Callable[[Path, str], list[str]]


def condor(folder: Path, url: str) -> list[str]:
    """Return HTCondor's call for the file x of a scratch directory."""
    (folder.parent / "in").write_text(write_ad({"LocalFileName": str(folder / "x"), "Url": f"coget://{url}"}))
    program = "from coalloc.plugins.condor import main; main()"
    words = ["-infile", str(folder.parent / "in"), "-outfile", str(folder.parent / "out")]
    return [sys.executable, "-c", program, *words]


def pegasus(folder: Path, url: str) -> list[str]:
    """Return the call of a job of Pegasus for the same."""
    transfer = {
        "type": "transfer",
        "id": 1,
        "src_urls": [{"site_label": "a", "url": each} for each in url.split("|")],
        "dest_urls": [{"site_label": "local", "url": f"file://{folder}/x"}],
    }
    (folder.parent / "jobs").write_text(json.dumps([transfer]))
    program = "from coalloc.plugins.pegasus import main; main()"
    return [sys.executable, "-c", program, "-f", str(folder.parent / "jobs")]


@pytest.fixture
def web(tmp_path: Path) -> Iterator[list[Nginx]]:
    """Two slow servers with two files of one size."""
    root, more = tmp_path / "web", "limit_rate 1m;"
    with Nginx(root, tmp_path / "a", more=more) as one, Nginx(root, tmp_path / "b", more=more) as two:
        random_file(one.root / "first", SIZE)
        random_file(one.root / "second", SIZE)
        yield [one, two]


def on_disk(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize("command", [condor, pegasus])
def test_the_next_run_of_a_killed_job_gives_the_right_bytes(command: Command, web: list[Nginx], tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[3]), "HOME": "/proc/none"}
    names = {name: "|".join(server.url(name) for server in web) for name in ("first", "second")}
    chance = random.Random(command.__name__)
    for number in range(effort(1, 12)):
        folder = tmp_path / f"job{number}" / "scratch"
        folder.mkdir(parents=True)
        enough = chance.randrange(SIZE // 2)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
        words = command(folder, names["first"])
        with subprocess.Popen(words, cwd=folder, env=environment, **quiet) as process:
            wait_until(lambda p=process, f=folder, e=enough: on_disk(f) > e or p.poll() is not None)
            os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == -signal.SIGKILL
        wanted = chance.choice(list(names))  # the next run may be about another file of this size
        words, own = command(folder, names[wanted]), {"cwd": folder, "env": environment}
        ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, **own)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert (folder / "x").read_bytes() == (web[0].root / wanted).read_bytes()
        assert [each.name for each in folder.iterdir()] == ["x"]
