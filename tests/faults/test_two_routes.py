"""Two routes to one server, direct and over a depot, on a WAN: `--via auto` uses both, and does without either."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.coget import patient
from tests.support.depot import DEPOT
from tests.support.programs import with_this_checkout
from tests.support.waiting import PATIENCE, wait_until
from tests.testbed import servers
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan

pytestmark = pytest.mark.wan

COGET = str(Path(sys.executable).with_name("coget"))
LINKS = {
    "client-server": {"rate": "20mbit", "delay": "20ms"},
    "client-depot": {"rate": "30mbit", "delay": "12ms"},
    "depot-server": {"rate": "30mbit", "delay": "12ms"},
}
SIZE = 12_000_000
OPEN = ("--listen", "0.0.0.0:4000", "--clients", "10.0.0.0/8", "--destinations", "10.0.0.0/8")


class Routes:
    """A client with two routes to a server that has a file.

    :param url: URL of the file
    """

    def __init__(self, wan: Wan, folder: Path, url: str, depot: "subprocess.Popen[str]") -> None:
        self.wan = wan
        self.url = url
        self.depot = depot
        self._folder = folder
        self.audit = folder / "audit"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a coget that waits for the depot."""
        history = str(self._folder / "history.sqlite")
        own = {"COGET_HISTORY": history, "XDG_CONFIG_HOME": str(self._folder), **patient(self._folder)}
        return with_this_checkout({**os.environ, **own})

    def start(self) -> "subprocess.Popen[str]":
        command = [COGET, "--via", "auto", "--quiet", "--json", self.url, "-o", str(self._folder / "here")]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(self.wan.command("client", command), env=self.environment, text=True, **pipes)

    def fetch(self) -> dict:
        with self.start() as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        assert (self._folder / "here").read_bytes() == (self._folder / "export" / "file").read_bytes()
        return json.loads(out)

    @property
    def relayed_bytes(self) -> int:
        """Payload bytes in sessions of the depot that have ended."""
        lines = map(json.loads, self.audit.read_text().splitlines())
        return sum(line.get("down", 0) for line in lines)


@contextmanager
def two_routes(folder: Path, kind: str, links: dict = LINKS) -> Iterator[Routes]:
    (folder / "export").mkdir()
    (folder / "export" / "file").write_bytes(os.urandom(SIZE))
    with Wan(Topology.load({"links": links})) as wan, ExitStack() as stack:
        server = stack.enter_context(getattr(servers, kind)(wan, "server", folder / "export"))
        (folder / "coget").mkdir()
        (folder / "coget" / "config.toml").write_text(f'depots = ["{wan.address("depot")}:4000"]\n')
        words = [str(DEPOT), "serve", *OPEN, "--audit", str(folder / "audit")]
        depot = subprocess.Popen(wan.command("depot", words), stdout=subprocess.PIPE, text=True)
        with depot:
            stack.callback(depot.kill)
            assert depot.stdout is not None
            assert depot.stdout.readline()
            yield Routes(wan, folder, server.url("file"), depot)
            depot.kill()


@pytest.mark.parametrize("kind", ["gridftp", "nginx"])
def test_both_are_used(tmp_path: Path, kind: str) -> None:
    with two_routes(tmp_path, kind) as routes:
        report = routes.fetch()
        routes.depot.terminate()
        routes.depot.wait(PATIENCE)
        assert SIZE // 5 < routes.relayed_bytes < SIZE
    (source,) = report["sources"]
    assert source["bytes"] == SIZE
    assert report["checksum"]["basis"] in ("own word", "none")  # one replica confirms nothing, by two routes neither


@pytest.mark.parametrize("first", ["none", "depot"])
@pytest.mark.parametrize("kind", ["gridftp", "nginx"])
def test_a_depot_that_dies_costs_no_byte(tmp_path: Path, kind: str, first: str) -> None:
    delay = "60ms" if first == "depot" else "10ms"
    links = LINKS | {"client-server": {"rate": "20mbit", "delay": delay}}
    with ExitStack() as stack:
        routes = stack.enter_context(two_routes(tmp_path, kind, links))
        words = [COGET, "probe", "--via", "auto", "--bytes", "2MB", routes.url]
        subprocess.run(routes.wan.command("client", words), env=routes.environment, check=True, capture_output=True)
        process = stack.enter_context(routes.start())
        partial = tmp_path / "here.coget" / "data"
        wait_until(lambda: process.poll() is not None or _on_disk(partial) > SIZE // 4)
        routes.depot.kill()
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
    assert (tmp_path / "here").read_bytes() == (tmp_path / "export" / "file").read_bytes()


def _on_disk(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.exists() else 0


def test_depot_is_used_if_the_direct_route_is_closed(tmp_path: Path) -> None:
    with two_routes(tmp_path, "nginx") as routes:
        rule = ["ip", "route", "replace", "unreachable", f"{routes.wan.address('server')}/32"]
        subprocess.run(routes.wan.command("client", rule), check=True)
        routes.fetch()
        routes.depot.terminate()
        routes.depot.wait(PATIENCE)
        assert routes.relayed_bytes > SIZE


@pytest.mark.parametrize("faster", ["depot", "none"])
@pytest.mark.parametrize("kind", ["gridftp", "nginx"])
def test_after_a_probe_a_small_file_comes_over_the_faster_route(tmp_path: Path, kind: str, faster: str) -> None:
    """The faster route carries most bytes, but not all of them if it stalls on this machine."""
    rates = {name: "30mbit" if ("depot" in name) == (faster == "depot") else "5mbit" for name in LINKS}
    links = {name: {**link, "rate": rates[name]} for name, link in LINKS.items()}
    with two_routes(tmp_path, kind, links) as routes:
        words = [COGET, "probe", "--via", "auto", "--bytes", "2MB", routes.url]
        subprocess.run(routes.wan.command("client", words), env=routes.environment, check=True, capture_output=True)
        small = tmp_path / "export" / "file"
        small.write_bytes(os.urandom(SIZE // 10))
        report = routes.fetch()
    (source,) = report["sources"]
    carried = {use["route"]: use["bytes"] for use in source["routes"] if use["bytes"]}
    place = f"{routes.wan.address('depot')}:4000"
    assert max(carried, key=carried.__getitem__) == (place if faster == "depot" else "none")
