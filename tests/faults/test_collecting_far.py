"""A server with a narrow link to this host and wide links to other servers: its files come over these."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
LINKS = {
    "client-s1": {"rate": "2mbit", "delay": "5ms"},
    "client-s2": {"rate": "80mbit", "delay": "10ms"},
    "client-s3": {"rate": "60mbit", "delay": "10ms"},
    "s1-s2": {"rate": "100mbit", "delay": "8ms"},
    "s1-s3": {"rate": "50mbit", "delay": "8ms"},
}
FILES = {"s1": 3, "s2": 1, "s3": 1}
SIZE = 4_000_000
LIMIT_SECONDS = 2 * PATIENCE


def test_files_behind_a_narrow_link_are_relayed(tmp_path: Path) -> None:
    with Wan(Topology.load({"links": LINKS})) as wan, ExitStack() as stack:
        sources, contents = [], {}
        for name, count in FILES.items():
            (tmp_path / name).mkdir()
            server = stack.enter_context(servers.gridftp(wan, name, tmp_path / name))
            for number in range(count):
                file = f"{name}-{number}"
                contents[file] = os.urandom(SIZE)
                (tmp_path / name / file).write_bytes(contents[file])
                sources.append(server.url(file))
        to = tmp_path / "to"
        command = [COGET, "collect", *sources, "--to", str(to), "--method", "adaptive", "--json", "--quiet"]
        ended = subprocess.run(
            wan.command("client", command),
            env={**os.environ, "COGET_HISTORY": "off"},
            timeout=LIMIT_SECONDS,
            capture_output=True,
            check=True,
        )
        report = json.loads(ended.stdout)
        assert {path.name: path.read_bytes() for path in to.iterdir()} == contents
        narrow = f"ftp://{wan.address('s1')}:"
    direct = sum(
        pair["bytes"] for pair in report["pairs"] if pair["source"].startswith(narrow) and pair["sink"] == "here"
    )
    # A busy machine makes the wide links slower, but hardly as slow as the narrow one, a tenth and less of theirs.
    assert direct < FILES["s1"] * SIZE / 2
    assert report["staged_bytes"]
