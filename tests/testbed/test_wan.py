"""The WAN: it behaves as its topology says, changes on request, reports overload, and leaves nothing behind.

No test requires a fast machine: tests check only that a link is not faster than its settings.
"""

import hashlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.waiting import PATIENCE
from tests.testbed.driver import EmulatorError
from tests.testbed.topology import Topology, TopologyError
from tests.testbed.wan import Invalid, LinkStats, Wan

pytestmark = pytest.mark.wan

LIMIT_SECONDS = PATIENCE
PORT = 5000
PAYLOAD = 1448  # bytes of data in a full TCP packet of 1500

SEND = f"""
import socket, sys
with socket.create_connection((sys.argv[1], {PORT}), timeout={LIMIT_SECONDS}) as connection:
    connection.sendall(open(sys.argv[2], "rb").read())
    connection.shutdown(socket.SHUT_WR)
    connection.recv(1)  # until the other side has all
"""
RECEIVE = f"""
import hashlib, socket
with socket.create_server(("", {PORT})) as listener:
    print("ready", flush=True)
    listener.settimeout({LIMIT_SECONDS})
    connection, _ = listener.accept()
    with connection:
        connection.settimeout({LIMIT_SECONDS})
        digest = hashlib.sha256()
        while data := connection.recv(1 << 20):
            digest.update(data)
        print(digest.hexdigest())
"""


@contextmanager
def two_hosts(**link: Any) -> Iterator[Wan]:
    with Wan(Topology.load({"links": {"a-b": {"rate": "100mbit", **link}}})) as wan:
        yield wan


def run(wan: Wan, host: str, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(wan.command(host, command), capture_output=True, text=True, timeout=LIMIT_SECONDS)


def pings(wan: Wan, *, count: int = 3, wait: float = LIMIT_SECONDS) -> dict[int, float]:
    """Send `count` pings from `a` to `b` at once; return the numbers of the answered ones with their round-trip times.

    :param wait: seconds for which `ping` waits for more answers after the first; without any, it waits for one second
    :returns: times in seconds
    """
    # `ping` waits for other answers as long as between two pings, or two round trips: the interval is the longer one.
    command = ["ping", "-n", "-c", str(count), "-l", str(count), "-i", str(wait), "-W", "1", "b"]
    answers = re.findall(r"icmp_seq=([0-9]+) .*time=([0-9.]+)", run(wan, "a", *command).stdout)
    return {int(number): float(milliseconds) / 1e3 for number, milliseconds in answers}


def test_a_route_back_may_be_another():
    links = {
        "a-b": {"rate": "100mbit", "ab": {"delay": "1ms"}, "ba": {"delay": "50ms"}},
        "b-c": {"rate": "100mbit", "delay": "1ms"},
        "c-a": {"rate": "100mbit", "delay": "1ms"},
    }
    with Wan(Topology.load({"links": links})) as wan:
        assert wan.topology.routes("b")["a"] == "c"
        assert len(pings(wan)) == 3


def transfer(wan: Wan, file: Path) -> str:
    """Send a file from `a` to `b` over TCP; return the digest of the received bytes."""
    command = wan.command("b", [sys.executable, "-c", RECEIVE])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        try:
            assert receiver.stdout is not None
            assert receiver.stdout.readline() == "ready\n"
            assert run(wan, "a", sys.executable, "-c", SEND, "b", str(file)).returncode == 0
            return receiver.stdout.readline().strip()
        finally:
            receiver.kill()


def read_from(wan: Wan, host: str) -> int:
    """Return the number of packets that the emulator has read from the device of a host's only link."""
    (line,) = re.findall(r"to-\w+: *(.*)", run(wan, host, "cat", "/proc/net/dev").stdout)
    return int(line.split()[9])


def sent_by(wan: Wan, host: str) -> int:
    """Return the number of packets that a host has sent, including those that the emulator has not read yet."""
    titles, numbers = (line.split() for line in run(wan, host, "grep", "^Ip:", "/proc/net/snmp").stdout.splitlines())
    return int(numbers[titles.index("OutRequests")])


def eventually(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not (holds := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return holds


def alive(pid: int) -> bool:
    """Return whether a process runs; zombies do not count."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


@contextmanager
def sleeping(wan: Wan, host: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in a host that ends only when it is killed."""
    with subprocess.Popen(wan.command(host, ["sleep", "600"])) as process:
        try:
            assert eventually(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
            yield process
        finally:
            process.kill()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1_000_001))
    return path


def digest_of(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_hosts_have_names_and_addresses_and_meet_over_several_hops():
    with Wan(Topology.load("shared")) as wan:
        assert wan.address("client") == "10.77.1.1"
        assert run(wan, "s1", "hostname").stdout == "s1\n"
        output = run(wan, "client", "ping", "-c1", "s2").stdout
        assert f"PING s2 ({wan.address('s2')})" in output
        assert "1 received" in output
        for link in ("client-neck", "neck-s2"):
            assert wan.stats()[link, "ab"].packets == 1
            assert wan.stats()[link, "ba"].packets == 1


def test_a_command_runs_in_the_callers_folder_and_is_the_process_itself(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with two_hosts() as wan:
        assert run(wan, "a", "pwd").stdout == f"{tmp_path}\n"
        with sleeping(wan, "a"):
            pass
        assert run(wan, "a", "no-such-command").returncode == 127


def test_delay_is_never_shorter_than_set():
    with two_hosts(ab={"delay": "30ms"}, ba={"delay": "10ms"}) as wan:
        trips = pings(wan)
        assert len(trips) == 3
        assert min(trips.values()) >= 0.0399  # ping rounds


def test_rate_is_never_higher_than_set(file: Path):
    with two_hosts(rate="10mbit", queue="64kb") as wan:
        began = time.monotonic()
        transfer(wan, file)
        assert file.stat().st_size / (time.monotonic() - began) <= 1.25e6


@pytest.mark.parametrize("trouble", [{}, {"loss": "1%"}, {"jitter": "3ms"}, {"queue": "12kb"}, {"rate": "1gbit"}])
def test_arriving_bytes_equal_the_sent_bytes(trouble: dict[str, str], file: Path):
    with two_hosts(**{"delay": "2ms", **trouble}) as wan:
        assert transfer(wan, file) == digest_of(file)
        assert sum(way.rejected for way in wan.stats().values()) == 0


def test_bytes_are_counted_as_on_the_wire(file: Path):
    with two_hosts(delay="1ms") as wan:
        transfer(wan, file)
        sent, size = wan.stats()["a-b", "ab"], file.stat().st_size
        assert sent.queue_drops == sent.loss_drops == 0
        assert sent.packets >= size / PAYLOAD
        assert sent.bytes >= size + 52 * size / PAYLOAD
        assert sent.bytes <= (size + 52 * size / PAYLOAD) * 1.05


def test_a_full_queue_drops(file: Path):
    with two_hosts(rate="10mbit", queue="10kb") as wan:
        transfer(wan, file)
        assert wan.stats()["a-b", "ab"].queue_drops > 0


def test_a_link_changes_while_it_is_up():
    with two_hosts() as wan:
        wan.set("a-b", loss="100%")
        assert not pings(wan, count=2)
        assert wan.stats()["a-b", "ab"].loss_drops == 2
        wan.set("a-b", loss="0%", delay="20ms")
        assert min(pings(wan).values()) >= 0.0399


def test_one_direction_changes_alone():
    with two_hosts() as wan:
        wan.set("a-b", "ba", loss="100%")
        assert not pings(wan, count=2)
        stats = wan.stats()
        assert (stats["a-b", "ab"].packets, stats["a-b", "ab"].loss_drops) == (2, 0)
        assert (stats["a-b", "ba"].packets, stats["a-b", "ba"].loss_drops) == (0, 2)


def test_packets_in_the_queue_are_sent_at_the_new_rate():
    # At the first rate, the link would need 80 s to send the ping.
    with two_hosts(rate="100bit", queue="64kb") as wan:
        command = wan.command("a", ["ping", "-c1", "-s", "972", "-W", "100", "b"])
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as ping:
            try:
                assert eventually(lambda: read_from(wan, "a") == 1)
                wan.set("a-b", rate="100mbit")
                assert ping.wait(LIMIT_SECONDS) == 0
            finally:
                ping.kill()


def test_strangers_take_their_part():
    with two_hosts(cross={"rate": "50mbit"}) as wan:
        pings(wan)
        assert wan.stats()["a-b", "ab"].cross_packets > 0
        wan.set("a-b", cross=None)
        wan.reset_stats()
        pings(wan)
        assert wan.stats()["a-b", "ab"].cross_packets == 0


def test_seeds_make_runs_alike():
    def answered(wan: Wan, seed: int) -> set[int]:
        wan.seed(seed)
        return set(pings(wan, count=60, wait=2))

    with two_hosts(ab={"loss": "30%"}) as wan:
        assert answered(wan, 1) == answered(wan, 1)
        assert answered(wan, 1) != answered(wan, 2)


LISTEN = f"""
import socket
with socket.create_server(("", {PORT})) as listener:
    print("ready", flush=True)
    listener.settimeout({LIMIT_SECONDS})
    listener.accept()
    listener.accept()
"""
ASK = f"""
import socket
with socket.create_connection(("b", {PORT}), timeout={LIMIT_SECONDS}) as connection:
    print(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode())
"""


def test_each_host_has_its_congestion_control():
    links = {"a-b": {"rate": "100mbit"}, "b-c": {"rate": "100mbit"}}
    with Wan(Topology.load({"links": links, "congestion": {"c": "reno"}})) as wan:
        command = wan.command("b", [sys.executable, "-c", LISTEN])
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                assert server.stdout.readline() == "ready\n"
                assert run(wan, "a", sys.executable, "-c", ASK).stdout == "cubic\n"
                assert run(wan, "c", sys.executable, "-c", ASK).stdout == "reno\n"
            finally:
                server.kill()


def test_counters_begin_anew():
    with two_hosts() as wan:
        pings(wan)
        assert wan.stats()["a-b", "ab"].packets == 3
        wan.reset_stats()
        assert set(wan.stats().values()) == {LinkStats(0, 0, 0, 0, 0, 0.0, 0, 0)}
        wan.check()


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def emulator_of(wan: Wan) -> int:
    return int(wan.command("a", ["true"])[1])


def test_a_run_is_invalid_when_the_emulator_was_late():
    with two_hosts() as wan:
        with stopped(emulator_of(wan)):  # before the first packet, which it could forward in time
            ping = subprocess.Popen(wan.command("a", ["ping", "-c5", "-l5", "b"]), stdout=subprocess.DEVNULL)
            assert eventually(lambda: sent_by(wan, "a") == 5)
        assert ping.wait(LIMIT_SECONDS) == 0
        with pytest.raises(Invalid, match=r"of 10 packets left more than 1 ms late"):
            wan.check()
        wan.reset_stats()
        wan.check()


def test_a_run_is_invalid_when_packets_came_too_fast():
    flood = "import socket; s = socket.socket(type=2); [s.sendto(b'x', ('b', 9)) for _ in range(4000)]"
    with two_hosts() as wan:
        with stopped(emulator_of(wan)):
            run(wan, "a", sys.executable, "-c", flood)
        with pytest.raises(Invalid, match=r"^2000 packets came faster than the emulator read them"):
            wan.check()


def test_several_can_be_up_at_once():
    with two_hosts(loss="100%") as silent, two_hosts() as wan:
        assert not pings(silent, count=1)
        assert len(pings(wan)) == 3


def test_unknown_hosts_links_and_rates_are_named():
    with two_hosts() as wan:
        with pytest.raises(TopologyError, match="no host c; there are a, b"):
            wan.command("c", ["true"])
        with pytest.raises(TopologyError, match="no link b-a with direction ab; there are a-b"):
            wan.set("b-a", rate="1mbit")
        with pytest.raises(TopologyError, match="a-b: rate: 'fast' is not understood"):
            wan.set("a-b", rate="fast")


def test_end_of_a_wan_leaves_no_processes_and_files():
    with two_hosts() as wan:
        folder, emulator = wan.folder, emulator_of(wan)
        with sleeping(wan, "a") as sleeper:
            wan.__exit__()
            assert sleeper.wait(LIMIT_SECONDS) == -signal.SIGKILL
    assert not folder.exists()
    assert not alive(emulator)


def test_kill_of_python_leaves_no_processes_and_files(tmp_path: Path):
    program = f"""
import subprocess, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from tests.testbed.topology import Topology
from tests.testbed.wan import Wan
with Wan(Topology.load({{"links": {{"a-b": {{"rate": "1mbit"}}}}}})) as wan:
    command = wan.command("b", ["sleep", "600"])
    print(command[1], subprocess.Popen(command, start_new_session=True).pid, wan.folder, flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as python:
        assert python.stdout is not None
        emulator, sleeper, folder = python.stdout.readline().split()
        assert alive(int(emulator))
        assert Path(folder).exists()
        python.kill()
    assert eventually(lambda: not alive(int(sleeper)))
    assert eventually(lambda: not alive(int(emulator)))
    assert eventually(lambda: not Path(folder).exists())


def test_kill_of_the_emulator_leaves_no_processes_and_files():
    with two_hosts() as wan:
        with sleeping(wan, "a") as sleeper:
            os.kill(emulator_of(wan), signal.SIGKILL)
            assert sleeper.wait(LIMIT_SECONDS) == -signal.SIGKILL
        with pytest.raises(EmulatorError, match="has ended"):
            wan.stats()
    assert not wan.folder.exists()
