"""A far server on a full link, and on one that loses packets: coget recognizes the difference and adapts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc.schedule.stream_count import FIRST, MOST
from tests.support.waiting import PATIENCE
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
LINK = {"rate": "50mbit", "delay": "40ms"}
SIZE = 40_000_000
LIMIT_SECONDS = PATIENCE
ATTEMPTS = 3
"""Number of emulations, as long as they are invalid."""


@pytest.mark.parametrize(("loss", "streams"), [("0%", FIRST), ("0.5%", MOST)], ids=["full", "lossy"])
def test_streams_increase_if_packets_are_lost(tmp_path: Path, loss: str, streams: int) -> None:
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "data.bin").write_bytes(os.urandom(SIZE))
    for attempt in range(ATTEMPTS):
        try:
            found = measured(tmp_path, loss)
            break
        except Invalid:
            if attempt == ATTEMPTS - 1:
                raise
    assert found == streams


def measured(folder: Path, loss: str) -> int:
    """Fetch the file, and return its number of streams.

    :raises Invalid: the emulator was late: packets wait on such a path, or are lost, as on no real one
    """
    topology = Topology.load({"links": {"client-server": {**LINK, "loss": loss}}})
    with Wan(topology) as wan, servers.gridftp(wan, "server", folder / "export") as server:
        command = [COGET, "--quiet", "--json", server.url("data.bin"), "-o", str(folder / "data.bin")]
        done = subprocess.run(
            wan.command("client", command),
            env={**os.environ, "COGET_HISTORY": "off"},
            timeout=LIMIT_SECONDS,
            capture_output=True,
            check=True,
        )
        assert (folder / "data.bin").read_bytes() == (folder / "export" / "data.bin").read_bytes()
        (folder / "data.bin").unlink()
        wan.check()
    (source,) = json.loads(done.stdout)["sources"]
    return source["streams"]
