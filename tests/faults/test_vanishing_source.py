"""A distant source whose packets are all lost from some moment on: what it delivered before is kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE, wait_until
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
SIZE = 40_000_000
LINK = {"rate": "60mbit", "delay": "20ms"}


@pytest.mark.parametrize("serve", [servers.gridftp, servers.nginx], ids=["ftp", "http"])
def test_delivered_bytes_are_kept_and_the_rest_is_fetched_in_few_pieces(tmp_path: Path, serve) -> None:
    """Another server confirms its bytes over GridFTP; its own answers confirm all but the newest over HTTP."""
    (tmp_path / "export").mkdir()
    original = tmp_path / "export" / "data.bin"
    original.write_bytes(os.urandom(SIZE))
    topology = Topology.load({"links": {"client-near": LINK, "client-gone": LINK}})
    with (
        Wan(topology) as wan,
        serve(wan, "near", tmp_path / "export") as near,
        serve(wan, "gone", tmp_path / "export") as gone,
    ):
        urls = [near.url("data.bin"), gone.url("data.bin")]
        process = subprocess.Popen(
            wan.command("client", [COGET, "--quiet", "--json", *urls, "-o", str(tmp_path / "data.bin")]),
            env={**os.environ, "COGET_HISTORY": "off"},
            stdout=subprocess.PIPE,
        )
        try:
            wait_until(lambda: wan.stats()["client-gone", "ba"].bytes > SIZE / 3)
            wan.set("client-gone", loss="100%")
            report = json.loads(process.communicate(timeout=PATIENCE)[0])
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "data.bin").read_bytes() == original.read_bytes()
    (others,) = (source["bytes"] for source in report["sources"] if source["url"] == near.url("data.bin"))
    assert others < SIZE * 7 / 8  # the other has sent a third: its newest bytes may be lost, but not all
    assert sum(source["ranges"] for source in report["sources"]) < 20
