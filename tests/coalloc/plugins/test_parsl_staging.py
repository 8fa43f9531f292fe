"""Parsl's tasks get their input by coget: real workers, real servers. Needs `parsl` of the extra `hosts`."""

import hashlib
import os
import pickle
import random
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("parsl", reason="pip install 'coget[hosts]' brings parsl")
from parsl.data_provider.files import File

from coalloc.errors import NoSuchFile, VerificationError
from coalloc.plugins.parsl_staging import CogetStaging, _below, _named
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]  # warnings of Parsl are its own

SCRIPT = """
import os, pickle, sys
import parsl
from parsl import bash_app, python_app, File
from parsl.config import Config
from parsl.data_provider.data_manager import default_staging
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider
from coalloc.errors import CoallocError
from coalloc.plugins.parsl_staging import CogetStaging

work, answers, *urls = sys.argv[1:]
attempts = []

def cost(error, task):
    attempts.append(task["id"])
    return 1 if not isinstance(error, CoallocError) or error.transient else 100

@python_app
def digest(inputs=()):
    import hashlib, os
    return hashlib.sha256(open(inputs[0], "rb").read()).hexdigest(), os.path.basename(inputs[0].filepath)

@bash_app
def count(inputs=(), stdout=None):
    return f"wc -c < {inputs[0]}"

executor = HighThroughputExecutor(
    label="htex", address="127.0.0.1", encrypted=False, working_dir=work, max_workers_per_node=4,
    provider=LocalProvider(init_blocks=1, max_blocks=1), storage_access=[CogetStaging(), *default_staging],
)
found = []
config = Config(executors=[executor], usage_tracking=0, retries=2, retry_handler=cost, run_dir=work + "-runs")
with parsl.load(config):
    counting = count(inputs=[File(urls[0])], stdout=work + "-count")
    futures = [digest(inputs=[File(url)]) for url in urls]
    for future in futures:
        try:
            found.append(future.result())
        except CoallocError as error:
            found.append(error)
    counting.result()
with open(answers, "wb") as file:
    pickle.dump((found, open(work + "-count").read(), attempts), file)
"""


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(3)]


def run(tmp_path: Path, *urls: str):
    """Run the script as a user whose home directory cannot be written; return its results."""
    bin_of_python = str(Path(sys.executable).parent)
    env = {
        "PATH": f"{bin_of_python}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "HOME": "/proc/1/none",
        "TMPDIR": str(tmp_path),
    }
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", str(tmp_path / "work"), str(tmp_path / "answers"), *urls]
    ended = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=2 * PATIENCE)
    assert ended.returncode == 0, ended.stderr
    return pickle.loads((tmp_path / "answers").read_bytes())


def test_tasks_get_whole_files_or_an_error_that_tells_whether_to_retry(web, tmp_path):
    content = random.Random(1).randbytes(3_000_000)
    lying = content[:-1] + bytes([content[-1] ^ 1])
    for server, sent in zip(web, (content, content, lying), strict=True):
        for name in ("x", "y"):
            (server.root / name).write_bytes(sent)
    right = hashlib.sha256(content).hexdigest()
    for name, servers in (("y.meta4", web), ("lies.meta4", web[2:])):
        (web[0].root / name).write_text(
            '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="y">'
            f'<hash type="sha-256">{right}</hash>'
            + "".join(f"<url>{server.url('y')}</url>" for server in servers)
            + "</file></metalink>"
        )
    both = "coget://" + "|".join(server.url("x") for server in web[:2])
    urls = [
        *[both] * 4,  # at once, and the same file
        f"coget://{web[0].url('y.meta4')}",  # one of three replicas lies
        f"coget://{web[0].url('lies.meta4')}",  # all replicas lie
        f"coget://{web[0].url('missing')}",
        web[0].url("x"),
    ]
    found, counted, attempts = run(tmp_path, *urls)
    assert found[:4] == [(right, "x")] * 4
    assert found[4] == (right, "y")
    assert isinstance(found[5], VerificationError)
    assert isinstance(found[6], NoSuchFile)
    assert not found[6].transient
    assert "404" in str(found[6])
    assert found[6].remedy in found[6].__notes__[0]
    assert found[7] == (right, "x")
    assert int(counted) == len(content)
    assert len(attempts) == 2  # one for each failed task: neither is tried again
    kept = sorted(path.name for path in (tmp_path / "work").rglob("[xy]") if path.is_file())
    assert kept == ["x", "x", "y"]


def test_names_are_harmless_and_differ():
    staging = CogetStaging()
    assert [
        staging.can_stage_in(File(url)) for url in ("coget://a:b", "gsiftp://a/b", "b", "file:///b", "globus://a/b")
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]
    places = [
        _below(url)
        for url in ("coget://a:b", "coget://a:c/b", "https://a/b", "https://c/b", "https://a/%2e%2e", "ftp://a/x%2Fy")
    ]
    assert len(set(places)) == len(places)
    assert [place.partition("/")[2] for place in places] == ["b", "b", "b", "b", "download", "x%2Fy"]
    assert repr(staging).startswith("CogetStaging(")
    assert [_named(url) for url in ("coget://https://a/x|ftp://b/x", "coget:lab:x", "ftp://a/x|y")] == [
        ("https://a/x", "ftp://b/x"),
        ("lab:x",),
        ("ftp://a/x|y",),
    ]
