"""`coget probe` on a WAN: measured rates are never above those of the links."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.effort import effort
from tests.support.waiting import PATIENCE
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
LIMIT_SECONDS = PATIENCE
SECONDS = effort(1, 2)
"""Duration of each measurement in seconds."""
LINKS = {
    "client-hub": {"rate": "400mbit", "delay": "1ms"},
    "hub-s1": {"rate": "80mbit", "delay": "2ms"},
    "hub-s2": {"rate": "40mbit", "delay": "2ms"},
    "hub-s3": {"rate": "200mbit", "delay": "2ms"},
}


@pytest.mark.long
def test_no_pair_and_no_server_is_faster_than_its_links(tmp_path: Path) -> None:
    with Wan(Topology.load({"links": LINKS})) as wan:
        names = ("s1", "s2", "s3")
        for name in names:
            (tmp_path / name).mkdir()
        with (
            servers.gridftp(wan, "s1", tmp_path / "s1") as one,
            servers.gridftp(wan, "s2", tmp_path / "s2") as two,
            servers.gridftp(wan, "s3", tmp_path / "s3") as three,
        ):
            urls = [f"ftp://{each.host}:{each.port}{each.root}/" for each in (one, two, three)]
            command = wan.command("client", [COGET, "probe", "--json", "--blast", "--seconds", str(SECONDS), *urls])
            variables = {**os.environ, "COGET_HISTORY": "off"}
            done = subprocess.run(
                command, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True
            )
    limits = dict(zip(("/".join(url.split("/")[:3]) for url in urls), (10e6, 5e6, 25e6), strict=True))
    measured = json.loads(done.stdout)["measured"]
    assert len(measured) == 12
    for each in measured:
        most = min(limits.get(each["source"], 30e6), limits.get(each["sink"], 30e6))
        # Bytes from queues add at most half a second's worth; the next faster link has twice the rate.
        assert 0 < each["rate"] <= (1 + 0.5 / SECONDS) * most, each
