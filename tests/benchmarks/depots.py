"""A depot beside HAProxy in TCP mode with splicing, on the loopback interface of this machine.

    python -m tests.benchmarks.depots [--gb 4] [--rounds 7]

Scenario names are permanent: `one`, `64` and `1000` (so many streams at once; throughput and processor time for each
GB), `idle` (memory of the process for each of 1,000 idle sessions), `first` (from the start of connect() to the first
payload byte at the destination, over one depot and over three). Each round runs the rivals in a new random order; a
ratio compares runs of one round. Sender, relay and receiver share the processors.
"""

import argparse
import os
import random
import resource
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from coalloc.depot import DepotRoute, create_connection
from coalloc.depot.protocol.addresses import HostPort
from tests.benchmarks.loopback import spread
from tests.support.depot import DEPOT, LOOPBACK
from tests.support.listening import wait_until_listening
from tests.support.waiting import PATIENCE

STREAMS = {"one": 1, "64": 64, "1000": 1000}
IDLE = 1000
FIRST_ROUNDS = 30
RECEIVER = """
import select, socket, sys
count = int(sys.argv[1])
listener = socket.create_server(("127.0.0.1", 0), backlog=2000)
print(listener.getsockname()[1], flush=True)
buffer = bytearray(1 << 20)
while True:
    poll, open_ = select.epoll(), {}
    while len(open_) < count:
        sock, _ = listener.accept()
        sock.setblocking(False)
        open_[sock.fileno()] = sock
        poll.register(sock.fileno(), select.EPOLLIN)
    total = 0
    while open_:
        for number, _ in poll.poll():
            try:
                received = open_[number].recv_into(buffer)
            except BlockingIOError:
                continue
            total += received
            if not received:
                poll.unregister(number)
                open_.pop(number).close()
    print(total, flush=True)
"""
HAPROXY = """
global
  maxconn 3000
  maxpipes 2000
defaults
  mode tcp
  option splice-request
  option splice-response
  timeout connect 10s
  timeout client 300s
  timeout server 300s
  maxconn 3000
listen relay
  bind 127.0.0.1:{port} backlog 2000
  server receiver 127.0.0.1:{to} maxconn 3000
"""


class Relayed(NamedTuple):
    """The result of one run: payload bits per second, and the relay's processor seconds for each GB."""

    rate: float
    cpu: float


class Relay(NamedTuple):
    """A running relay.

    :param place: its address
    :param connect: connects to a server through it
    """

    process: subprocess.Popen[Any]
    place: HostPort
    connect: Callable[[HostPort], socket.socket]

    @property
    def cpu(self) -> float:
        """The processor seconds of the relay so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """The resident bytes of the relay."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


@contextmanager
def depot() -> Iterator[Relay]:
    words = [str(DEPOT), "serve", "--listen", "127.0.0.1:0", "--audit", os.devnull, "--sessions-per-user", "5000"]
    clients = cycle([("127.0.0.2", 0), ("127.0.0.3", 0)])  # one address gets a quarter of the sessions
    with subprocess.Popen([*words, *LOOPBACK], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        place = HostPort.parse(process.stdout.readline().split()[-1])
        try:
            yield Relay(
                process, place, lambda to: create_connection(to, None, next(clients), route=DepotRoute((place,)))
            )
        finally:
            process.kill()


@contextmanager
def haproxy(folder: Path, to: HostPort) -> Iterator[Relay]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = HostPort(*free.getsockname())
    config = folder / "haproxy"
    config.write_text(HAPROXY.format(port=place.port, to=to.port))
    with subprocess.Popen(["haproxy", "-db", "-f", str(config)], stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_listening(process, place.host, place.port, PATIENCE)
            yield Relay(process, place, lambda _: socket.create_connection(place))
        finally:
            process.kill()


@contextmanager
def receiver(streams: int) -> Iterator[tuple[HostPort, Callable[[], int]]]:
    """Run a receiver; yield its address, and a function that waits until all streams have ended."""
    with subprocess.Popen([sys.executable, "-c", RECEIVER, str(streams)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        stream = process.stdout
        try:
            yield HostPort("127.0.0.1", int(stream.readline())), lambda: int(stream.readline())
        finally:
            process.kill()


def sent(relay: Relay, to: HostPort, streams: int, size: int, received: Callable[[], int]) -> Relayed:
    """Send so many bytes over a relay, in equal parts at once, from a process of its own."""
    connections = [relay.connect(to) for _ in range(streams)]
    before, began = relay.cpu, time.perf_counter()
    child = os.fork()
    if not child:
        _send(connections, size // streams)
    for each in connections:
        each.close()
    total = received()
    seconds = time.perf_counter() - began
    os.waitpid(child, 0)
    return Relayed(8 * total / seconds, (relay.cpu - before) / (total / 1e9))


def _send(connections: list[socket.socket], size: int) -> None:
    """Send so many bytes on each connection, and exit."""
    file = os.memfd_create("payload")
    os.write(file, random.randbytes(1 << 20))
    poll, left, open_ = select.epoll(), {}, {}
    for each in connections:
        each.setblocking(False)
        left[each.fileno()], open_[each.fileno()] = size, each
        poll.register(each.fileno(), select.EPOLLOUT)
    while open_:
        for number, _ in poll.poll():
            try:
                left[number] -= os.sendfile(number, file, 0, min(left[number], 1 << 20))
            except BlockingIOError:
                continue
            if not left[number]:
                poll.unregister(number)
                open_.pop(number).shutdown(socket.SHUT_WR)
    os._exit(0)


def throughput(folder: Path, name: str, size: int, rounds: int) -> None:
    """Print throughput and processor time beside HAProxy's."""
    streams = STREAMS[name]
    rates, costs = [], []
    with ExitStack() as stack:
        to, received = stack.enter_context(receiver(streams))
        rivals = {"depot": stack.enter_context(depot()), "haproxy": stack.enter_context(haproxy(folder, to))}
        for _ in range(rounds):
            order = random.sample(sorted(rivals), len(rivals))
            run = {rival: sent(rivals[rival], to, streams, size, received) for rival in order}
            rates.append(run["depot"].rate / run["haproxy"].rate)
            costs.append(run["depot"].cpu / run["haproxy"].cpu)
            figures = (f"{rival} {each.rate / 1e9:.1f} Gbit/s {each.cpu:.2f} s/GB" for rival, each in run.items())
            print("  " + ", ".join(figures), flush=True)
    goal = 0.8 if streams == 1000 else 0.9
    print(f"{name}: throughput {spread(rates)} (goal {goal}), processor {spread(costs)} (goal 1.2) of HAProxy's")


def idle() -> None:
    """Print the memory of idle sessions."""
    with depot() as relay, receiver(IDLE) as (to, _):
        before = relay.memory
        connections = [relay.connect(to) for _ in range(IDLE)]
        print(f"idle: {(relay.memory - before) / IDLE / 1000:.1f} kB for each session (goal 64)")
        for each in connections:
            each.close()


def first() -> None:
    """Print the time until the first payload byte is at the destination."""
    with ExitStack() as stack:
        places = [stack.enter_context(depot()).place for _ in range(3)]
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        to = HostPort(*listener.getsockname())
        for hops in (1, 3):
            times = []
            for _ in range(FIRST_ROUNDS):
                began = time.perf_counter()
                with create_connection(to, route=DepotRoute(tuple(places[:hops])), first=b"x"):
                    taken, _ = listener.accept()
                    with taken:
                        taken.recv(1)
                        times.append(time.perf_counter() - began)
            longest = 1000 * max(times)
            print(f"first: {1000 * median(times):.2f} ms over {hops} hops, {longest:.2f} at most (goal {2 * hops})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gb", type=float, default=4.0)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="coget-bench-") as name:
        for scenario in STREAMS:
            throughput(Path(name), scenario, int(given.gb * 1e9), given.rounds)
    idle()
    first()


if __name__ == "__main__":
    main()
