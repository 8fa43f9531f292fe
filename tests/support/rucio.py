"""Rucio's own server on loopback, with SQLite, from the environment in build/rucio that `make test-long` makes.

Its traces go to a file, as no message broker runs. Requests in Python run by Rucio's own client, too.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.loopback_server import LoopbackServer
from tests.support.waiting import PATIENCE

__all__ = ["PYTHON", "RucioServer"]

PYTHON = Path(__file__).parents[2] / "build/rucio/bin/python"
CONF = """
[common]
logdir = {run}
mailtemplatedir = {run}
[client]
rucio_host = {url}
auth_host = {url}
auth_type = userpass
username = ann
password = secret
account = root
request_retries = 1
[database]
default = sqlite:///{run}/rucio.db
[bootstrap]
userpass_identity = ann
userpass_pwd = secret
[policy]
permission = generic
schema = generic
lfn2pfn_algorithm_default = hash
[conveyor]
transfertool = globus
globus_auth_app = coget
[api]
endpoints_add = traces
[trace]
tracedir = {run}
brokers = 127.0.0.1
port = 9
topic = none
username = none
password = none
"""
BUILD = """
from rucio.db.sqla import models
from rucio.db.sqla.session import get_engine
from rucio.db.sqla.util import create_base_vo, create_root_account
models.register_models(get_engine())
create_base_vo()
create_root_account()
"""
SERVE = """
import sys
from werkzeug.serving import make_server
from rucio.web.rest.main import application
make_server("127.0.0.1", int(sys.argv[1]), application, threaded=True).serve_forever()
"""
CLIENT = """
import json, sys
from rucio.client import Client
client = Client()
for method, given in json.loads(sys.argv[1]):
    found = getattr(client, method)(**given)
"""


class RucioServer(LoopbackServer):
    """One running server, ready when constructed.

    :ivar config: its rucio.cfg, for clients, too
    """

    scheme = "http"

    def __init__(self, run: Path) -> None:
        if not PYTHON.exists():
            pytest.skip("make test-long installs Rucio into build/rucio")
        super().__init__(run / "root", run, "127.0.0.1", 0)
        self.config = run / "rucio.cfg"
        self.config.write_text(CONF.format(run=run, url=f"http://127.0.0.1:{self.port}"))
        self.python(BUILD)
        self._start(["env", *self._environment, str(PYTHON), "-c", SERVE, str(self.port)])

    @property
    def _environment(self) -> list[str]:
        return [f"RUCIO_CONFIG={self.config}", f"RUCIO_HOME={self.run}", f"PYTHONPATH={self.run}"]

    def python(self, code: str, *words: str, **variables: str) -> str:
        """Run Python with Rucio's packages and environment variables; return what it prints."""
        added = [f"{name}={value}" for name, value in variables.items()]
        command = ["env", *self._environment, *added, str(PYTHON), "-c", code, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd="/")
        assert done.returncode == 0, done.stderr
        return done.stdout

    def call(self, *calls: tuple[str, dict[str, Any]]) -> None:
        """Call methods of Rucio's client."""
        self.python(CLIENT, json.dumps(calls))

    def shell(self, script: str, **variables: str) -> str:
        """Run Rucio's programs, also its daemons, by a shell in the directory `run`; return what they print."""
        environment = {"PATH": f"{PYTHON.parent}:/usr/bin:/bin"} | variables
        command = ["env", "-i", *self._environment, *(f"{name}={value}" for name, value in environment.items())]
        command += ["sh", "-ec", script]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=self.run)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def add_storage(self, name: str, port: int, **attributes: str) -> None:
        """Add a storage element: a web server on loopback."""
        actions = dict.fromkeys(("read", "write", "delete"), 1)
        third_party = {"third_party_copy_read": 1, "third_party_copy_write": 1}
        protocol = {
            "scheme": "http", "hostname": "127.0.0.1", "port": port, "prefix": "/",
            "impl": "rucio.rse.protocols.gfal.Default",
            "domains": {"lan": actions, "wan": {**actions, **third_party}},
        }  # fmt: skip
        calls: list[tuple[str, dict[str, Any]]] = [
            ("add_rse", {"rse": name}),
            ("add_protocol", {"rse": name, "params": protocol}),
        ]
        for key, value in attributes.items():
            calls.append(("add_rse_attribute", {"rse": name, "key": key, "value": value}))
        self.call(*calls)

    @property
    def traces(self) -> Sequence[dict[str, Any]]:
        """The traces that the server has accepted."""
        path = self.run / "trace"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
