"""Real depots, connected to a real broker: reports make them forward sessions, and no session ends with the broker."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from coalloc.depot import DepotRoute, create_connection
from coalloc.depot.protocol.addresses import HostPort
from tests.support.broker import BrokerProcess, broker_in
from tests.support.coget import coget
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

B = "/broker/v1"
CONTENT = os.urandom(3 << 20)
SECRET = "0123456789abcdef"
NAMES = ("depot-a", "depot-b", "depot-c")


class Forwarding(NamedTuple):
    """Three depots that are connected to a broker, of which all but the first need tickets, and a web server."""

    broker: BrokerProcess
    admin: httpx.Client
    depots: list[RunningDepot]
    web: Nginx

    def report(self, number: int, to: int, seconds: float) -> None:
        """Report five times the leg of a depot to a port of this machine."""
        times = {"connect_seconds": seconds, "round_trip": seconds}
        leg = {"host": "127.0.0.1", "port": to, "sessions": 1, "failures": 0, **times}
        self.admin.post(f"{B}/depots/{NAMES[number]}/legs", json={"legs": [leg] * 5}).raise_for_status()

    def report_that_the_server_is_far(self) -> None:
        """Report legs on which each depot is near the next one, the last one near the server, and all else far."""
        for number, seconds in enumerate((1.0, 0.4, 0.01)):
            self.report(number, self.web.port, seconds)
        self.report(0, self.depots[2].place.port, 0.4)
        for number in (0, 1):
            self.report(number, self.depots[number + 1].place.port, 0.01)

    def forwarded(self) -> bool:
        """Return whether a new session of the first depot goes over the two others."""
        self.report_that_the_server_is_far()
        assert self.ask() == CONTENT
        return [self.last_hop(number) for number in range(3)] == [
            *(each.place for each in self.depots[1:]),
            HostPort("127.0.0.1", self.web.port),
        ]

    def last_hop(self, number: int) -> HostPort | None:
        lines = [each for each in self.depots[number].lines if each.get("end")]
        return HostPort.parse(lines[-1]["next"]) if lines else None

    def ask(self) -> bytes:
        """Return the file that comes over a loose route that begins at the first depot."""
        route = DepotRoute((self.depots[0].place,), loose=True)
        before = len(self.depots[0].lines)
        with create_connection(("127.0.0.1", self.web.port), PATIENCE, route=route) as sock:
            sock.sendall(b"GET /file HTTP/1.0\r\n\r\n")
            whole = b"".join(iter(lambda: sock.recv(1 << 16), b""))
        wait_until(lambda: len(self.depots[0].lines) > before)
        return whole.partition(b"\r\n\r\n")[2]


def options(folder: Path, broker: BrokerProcess, name: str) -> tuple[str, ...]:
    """Return the options of a depot, and write its token and its secret."""
    answer = broker.client().post(f"{B}/tokens", json={"subject": f"of-{name}", "role": "transfer"})
    (folder / name).write_text(answer.json()["token"])
    (folder / "secret").write_text(SECRET)
    secret = () if name == NAMES[0] else ("--secret-file", str(folder / "secret"))
    return ("--name", name, "--broker", broker.url, "--token-file", str(folder / name), *LOOPBACK, *secret)


def registered(admin: httpx.Client, running: list[RunningDepot], web: Nginx) -> None:
    admin.put(f"{B}/sites/S", json={"name": "S"}).raise_for_status()
    endpoint = {"name": "e", "site": "S", "scheme": "http", "host": "127.0.0.1", "port": web.port}
    admin.put(f"{B}/endpoints/e", json=endpoint).raise_for_status()
    for name, each in zip(NAMES, running, strict=True):
        depot = {"name": name, "site": "S", "host": "127.0.0.1", "port": each.place.port, "subject": f"of-{name}"}
        depot |= {} if name == NAMES[0] else {"secret": SECRET}
        admin.put(f"{B}/depots/{name}", json=depot).raise_for_status()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Forwarding]:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_bytes(CONTENT)
    web = Nginx(tmp_path / "root", tmp_path / "nginx")
    with broker_in(tmp_path) as broker, depots(tmp_path, *(options(tmp_path, broker, name) for name in NAMES)) as three:
        registered(broker.client(), three, web)
        yield Forwarding(broker, broker.client(), three, web)
    web.close()


def test_depots_measure_legs_and_forward_even_after_the_broker_dies(world, tmp_path):
    def measured() -> bool:
        answers = [world.admin.get(f"{B}/depots/{name}/forwarding").json() for name in NAMES]
        return not any(each["measure"] for each in answers)

    wait_until(measured)
    wait_until(world.forwarded)  # again if a depot was slow, and so left out for a while
    for number in (1, 2):  # a depot writes a session's line after the end of the session
        before = f"of-{NAMES[number - 1]}"
        wait_until(lambda number=number, before=before: before in {line["user"] for line in world.depots[number].lines})
    source = f"http://127.0.0.1:{world.web.port}/file"
    done = coget([source, "--quiet", "--via", f"{world.depots[0].place},*", "-o", "here"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here").read_bytes() == CONTENT
    world.broker.process.send_signal(signal.SIGKILL)
    world.broker.process.wait()
    for each in world.depots:
        wait_until(lambda each=each: "failed to refresh the broker's table" in each.errors.read_text())
    wait_until(lambda: world.ask() == CONTENT and world.last_hop(0) == world.depots[1].place)
    world.depots[1].stop(signal.SIGKILL)
    assert world.ask() == CONTENT
    assert world.last_hop(0) == HostPort("127.0.0.1", world.web.port)
    assert {world.depots[number].stop() for number in (0, 2)} == {0}
