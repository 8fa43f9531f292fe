"""Workflows whose Snakemake is killed, whose replicas lie or are dead, and with other sources than web servers.

They need the plugin and Snakemake: without them, the tests are skipped.
"""

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Barrier, Thread
from urllib.parse import urlsplit

import pytest

from tests.support.broker import broker_in
from tests.support.coget import coget
from tests.support.fetching import random_file
from tests.support.gridftp import GridFTPServer
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until
from tests.support.workflows import begin, query, workflow

pytestmark = pytest.mark.long
pytest.importorskip("snakemake_storage_plugin_coget", reason="pip install snakemake packaging/snakemake brings it")

LOG = "log_format sent '$body_bytes_sent';"
METALINK = """<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x"><size>{size}</size>
<hash type="sha-256">{digest}</hash>{urls}</file></metalink>"""


@pytest.fixture
def web(tmp_path) -> Iterator[list[Nginx]]:
    with Nginx(tmp_path / "web0", tmp_path / "run0") as one, Nginx(tmp_path / "web1", tmp_path / "run1") as two:
        yield [one, two]


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def counted(folder: Path) -> str:
    """Return the checksum of the file that the job read; empty if no job ended."""
    made = folder / "count.txt"
    return made.read_text().split()[0] if made.exists() else ""


def on_disk(folder: Path) -> int:
    """Return the bytes of partial data."""
    return sum(file.stat().st_blocks * 512 for file in folder.glob(".snakemake/storage/**/x.coget/*"))


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
def test_after_a_kill_in_the_middle_the_next_run_continues(by, tmp_path):
    size, root, work = 32_000_000, tmp_path / "web", tmp_path / "work"
    with Nginx(root, tmp_path / "slow", more="limit_rate 2m;") as slow:
        content = random_file(root / "x", size)
        named, port = query([slow], "x"), slow.port
        with begin(work, named) as process:
            wait_until(lambda: on_disk(work) > size / 2 or process.poll() is not None)
            os.killpg(process.pid, by)
            out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0
        assert size / 2 < on_disk(work), out
        slow.kill()
        log = tmp_path / "sent"
        with Nginx(root, tmp_path / "fast", port=port, zones=LOG, more=f"access_log {log} sent;") as fast:
            status, out = workflow(work, named)
            assert status == 0, out
            fast.kill()
    assert counted(work) == digest(content)
    # the journal may be behind the data by the pieces that were in flight
    assert 0 < sum(map(int, log.read_text().split())) < size * 3 / 4
    assert not list(work.glob(".snakemake/storage/**/x*"))


def test_after_sigterm_snakemake_finishes_the_jobs_that_run_and_the_next_run_runs_none_of_them_again(tmp_path):
    """Snakemake does so with all jobs: it ends them only by SIGINT."""
    size, work = 8_000_000, tmp_path / "work"
    with Nginx(tmp_path / "web", tmp_path / "slow", more="limit_rate 2m;") as slow:
        content = random_file(slow.root / "x", size)
        named = query([slow], "x")
        with begin(work, named) as process:
            wait_until(lambda: on_disk(work) > size / 4 or process.poll() is not None)
            os.killpg(process.pid, signal.SIGTERM)
            out, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode != 0, out
        assert counted(work) == digest(content)
        status, out = workflow(work, named)
    assert status == 0, out
    assert (work / "ran").read_text().splitlines() == ["ran"]
    assert not list(work.glob(".snakemake/storage/**/x*"))


def test_of_a_replica_with_other_bytes_none_arrive_if_a_metalink_has_a_checksum(web, tmp_path):
    good, bad = (random_file(server.root / "x", 2_000_000, seed) for seed, server in enumerate(web))
    assert good != bad
    urls = "".join(f"<url>{server.url('x')}</url>" for server in web[::-1])
    (web[0].root / "x.meta4").write_text(METALINK.format(size=len(good), digest=digest(good), urls=urls))
    status, out = workflow(tmp_path / "work", query(web[:1], "x.meta4"))
    assert status == 0, out
    assert counted(tmp_path / "work") == digest(good)
    assert "not verified" not in out


def test_a_file_that_no_replica_has_right_fails_the_job(web, tmp_path):
    for seed, server in enumerate(web):
        random_file(server.root / "x", 2_000_000, seed)
    urls = "".join(f"<url>{server.url('x')}</url>" for server in web)
    (web[0].root / "x.meta4").write_text(METALINK.format(size=2_000_000, digest=digest(b""), urls=urls))
    status, out = workflow(tmp_path / "work", query(web[:1], "x.meta4"))
    assert status != 0
    assert counted(tmp_path / "work") == ""
    assert "checksum" in out


def test_a_file_that_could_not_be_compared_arrives_with_a_warning(web, tmp_path):
    for seed, server in enumerate(web):
        random_file(server.root / "x", 2_000_000, seed)
    status, out = workflow(tmp_path / "work", query(web, "x"))
    assert status == 0, out
    assert out.count("not verified: no checksum is known") == 1


@pytest.mark.parametrize("web_is", ["alive", "dead"])
def test_one_replica_is_at_a_gridftp_server(web_is, web, tmp_path):
    content = random_file(web[0].root / "x", 20_000_000)
    with GridFTPServer(tmp_path / "grid") as grid:
        random_file(grid.root / "x", 20_000_000)
        named = f"coget://{web[0].url('x')}|{grid.url('x')}"
        if web_is == "dead":
            web[0].kill()
        status, out = workflow(tmp_path / "work", named)
    assert status == 0, out
    assert counted(tmp_path / "work") == digest(content)
    assert "not verified" not in out


def test_replicas_of_one_size_that_contradict_each_other_at_gridftp_servers_fail_the_job(tmp_path):
    with GridFTPServer(tmp_path / "a") as one, GridFTPServer(tmp_path / "b") as two:
        for seed, server in enumerate((one, two)):
            random_file(server.root / "x", 20_000_000, seed)
        status, out = workflow(tmp_path / "work", query([one, two], "x"))
    assert status != 0, out
    assert counted(tmp_path / "work") == ""


def test_a_dataset_of_the_broker_arrives_and_an_unknown_one_does_not(web, tmp_path):
    content = random_file(web[0].root / "x", 1_000_000)
    with broker_in(tmp_path) as broker:
        config = tmp_path / "config/coget"
        config.mkdir(parents=True)
        (config / "tokens.toml").write_text(f'"127.0.0.1:{urlsplit(broker.url).port}" = "{broker.token}"\n')
        (config / "tokens.toml").chmod(0o600)
        known = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
        client = broker.client()
        client.put("/broker/v1/sites/A", json={"name": "A"}).raise_for_status()
        place = {"name": "web", "site": "A", "scheme": "http", "host": "127.0.0.1", "port": web[0].port, "prefix": "/"}
        client.put("/broker/v1/endpoints/web", json=place).raise_for_status()
        done = coget(["register", "--broker", broker.url, "run1:x", web[0].url("x")], tmp_path, **known)
        assert done.returncode == 0, done.stderr
        words = ("--storage-coget-broker", broker.url)
        status, out = workflow(tmp_path / "work", "coget://run1:x", *words, **known)
        assert status == 0, out
        assert counted(tmp_path / "work") == digest(content)
        status, out = workflow(tmp_path / "other", "coget://run1:y", *words, **known)
        assert status != 0
        assert "MissingInputException" in out


class Together(BaseHTTPRequestHandler):
    """Answers no first question about a file before all files were asked for."""

    protocol_version = "HTTP/1.1"
    asked: set[str]
    barrier: Barrier

    def do_HEAD(self) -> None:
        if self.path not in self.asked:
            self.asked.add(self.path)
            self.barrier.wait(PATIENCE)
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", "1")
        self.send_header("Content-Range", "bytes 0-0/1")
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(b"x")

    do_GET = do_HEAD

    def log_message(self, *_: object) -> None:
        pass


def test_servers_are_asked_about_many_files_at_once(tmp_path):
    count = 20
    handler = type("TogetherNow", (Together,), {"asked": set(), "barrier": Barrier(count)})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            named = [f"coget://http://127.0.0.1:{server.server_port}/x{i}" for i in range(count)]
            status, out = workflow(tmp_path / "work", named)
        finally:
            server.shutdown()
    assert status == 0, out
    assert counted(tmp_path / "work") == digest(b"x" * count)


def test_snakemake_imports_the_plugin_without_coget():
    code = "import sys, snakemake_storage_plugin_coget; print([x for x in sys.modules if x.startswith('coalloc')])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
