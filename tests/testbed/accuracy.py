"""`make bench-testbed`: the measured behaviour of the emulator's links, compared with their settings.

    python -m tests.testbed.accuracy [rate|delay|loss|change ...]

iperf3 and ping measure at the far end. A rate is that of TCP (cubic) for 4 s after it has settled, plus headers. A
delay is the mean round-trip time. A loss rate comes from the kernels' counters at both ends, for 40000 small UDP
packets. Runs that the emulator declares invalid are repeated up to `TRIES` times; then the table shows the reason.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.support.listening import wait_until_listening
from tests.testbed import driver
from tests.testbed.topology import Topology
from tests.testbed.wan import Invalid, Wan

TRIES = 3
SETTLE_SECONDS = 8
SECONDS = 4
LOSS_PACKETS = 40_000
LOSS_SECONDS = 8
LOSS_BYTES = 200
PINGS = 60
LIMIT_SECONDS = 90
START_SECONDS = 10
IPERF_PORT = 5201
TCP_SHARE = 1448 / 1500  # payload of a full packet: 52 bytes are headers
WINDOWS = "4096 131072 134217728"  # the longest path needs 25 MB, more than the default of many machines

DELAYS = ("1ms", "10ms", "50ms", "100ms")
RATES = ("10mbit", "100mbit", "500mbit", "1gbit")


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    what: str
    configured: str
    measured: str


Measure = Callable[[Wan], str]


def wan_of(**link: Any) -> Topology:
    """Return a topology of two hosts, `a` and `b`, with these settings of their link."""
    return Topology.load({"links": {"a-b": link}})


def run(wan: Wan, host: str, *command: str) -> str:
    """Run a command in a host; return its output.

    :raises SystemExit: the command failed
    """
    done = subprocess.run(wan.command(host, command), capture_output=True, text=True, timeout=LIMIT_SECONDS)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr or done.stdout}")
    return done.stdout


def iperf(wan: Wan, *options: str) -> dict[str, Any]:
    """Send from `a` to `b` with iperf3; return the part `end` of its JSON report.

    :raises SystemExit: iperf3 failed
    """
    command = wan.command("b", ["iperf3", "--server", "--one-off"])
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as server:
        try:
            if not wait_until_listening(server, wan.address("b"), IPERF_PORT, START_SECONDS):
                raise SystemExit("iperf3 does not start")
            report: dict[str, Any] = json.loads(run(wan, "a", "iperf3", "-c", "b", "-J", *options))
        finally:
            server.kill()
    if "error" in report:
        raise SystemExit(f"iperf3: {report['error']}")
    end: dict[str, Any] = report["end"]
    return end


def tcp_rate(wan: Wan) -> str:
    """Measure the rate of TCP including headers, in Mbit/s."""
    for host in ("a", "b"):
        for file in ("tcp_rmem", "tcp_wmem"):
            run(wan, host, "sh", "-c", f"echo {WINDOWS} > /proc/sys/net/ipv4/{file}")
    end = iperf(wan, "-C", "cubic", "-O", str(SETTLE_SECONDS), "-t", str(SECONDS))
    return f"{end['sum_received']['bits_per_second'] / TCP_SHARE / 1e6:.1f} Mbit/s"


def round_trip(wan: Wan) -> str:
    """Measure the mean and the shortest round-trip time, in milliseconds."""
    output = run(wan, "a", "ping", "-q", "-i", "0.03", "-c", str(PINGS), "b")
    least, mean, _ = re.findall(r"[0-9]+\.[0-9]+", output.partition("rtt")[2])[:3]
    return f"{float(mean):.2f} ms (least {float(least):.2f})"


def udp_loss(wan: Wan) -> str:
    """Measure the loss rate in percent, with two standard deviations of the statistical error."""
    bits = 8 * LOSS_BYTES * LOSS_PACKETS // LOSS_SECONDS
    iperf(wan, "-u", "-l", str(LOSS_BYTES), "-b", str(bits), "-t", str(LOSS_SECONDS))
    sent, came = udp_packets(wan, "a", "OutDatagrams"), udp_packets(wan, "b", "InDatagrams", "InErrors")
    share = 1 - came / sent
    return f"{share:.2%} ± {2 * sqrt(share / sent):.2%}"


def udp_packets(wan: Wan, host: str, *names: str) -> int:
    """Return the sum of these UDP counters of a host's kernel. InErrors counts packets that iperf3 read too slowly."""
    titles, numbers = (line.split() for line in run(wan, host, "grep", "Udp:", "/proc/net/snmp").splitlines())
    counted = dict(zip(titles, numbers, strict=True))
    return sum(int(counted[name]) for name in names)


def rates() -> Iterator[tuple[str, str, Topology, Measure]]:
    for rate in RATES:
        for delay in DELAYS:
            # A single TCP connection fills a link only if the queue holds half of its window.
            queue = f"{max(50.0, 2 * float(delay[:-2])):g}ms"
            topology = wan_of(rate=rate, delay=delay, queue=queue)
            yield f"rate, {delay} one way", rate, topology, tcp_rate


def delays() -> Iterator[tuple[str, str, Topology, Measure]]:
    for delay in ("0ms", *DELAYS):
        yield "round trip", f"2 x {delay}", wan_of(rate="1gbit", delay=delay), round_trip
    yield "round trip, jitter", "2 x 10ms..14ms", wan_of(rate="1gbit", delay="10ms", jitter="4ms"), round_trip


def losses() -> Iterator[tuple[str, str, Topology, Measure]]:
    for loss in ("0%", "0.1%", "1%", "5%"):
        yield "loss", loss, wan_of(rate="100mbit", delay="1ms", loss=loss), udp_loss
    bursts = {"start": "0.1%", "end": "20%", "loss": "50%"}
    expected = f"{0.001 / (0.001 + 0.2) * 0.5:.2%} in bursts"
    yield "loss", expected, wan_of(rate="100mbit", delay="1ms", bursts=bursts), udp_loss


def changes() -> Iterator[tuple[str, str, Topology, Measure]]:
    def slower(wan: Wan) -> str:
        wan.set("a-b", rate="40mbit")
        return tcp_rate(wan)

    cross = {"rate": "60mbit"}
    yield "rate, changed while up", "40mbit", wan_of(rate="400mbit", delay="10ms"), slower
    yield "rate left by cross traffic", "at most 40mbit", wan_of(rate="100mbit", delay="1ms", cross=cross), tcp_rate


PARTS = {"rate": rates, "delay": delays, "loss": losses, "change": changes}


def measured(topology: Topology, measure: Measure) -> str:
    """Measure until the emulator keeps up, up to `TRIES` times; return the result, or why there is none."""
    reason = ""
    for _ in range(TRIES):
        with Wan(topology) as wan:
            value = measure(wan)
            try:
                wan.check()
            except Invalid as error:
                reason = f"invalid: {error}"
            else:
                return value
    return reason


def main(names: list[str]) -> int:
    """Measure the named parts, or all, and print the table."""
    if reason := driver.refusal():
        print(f"this machine cannot run a WAN: {reason}", file=sys.stderr)
        return 1
    if unknown := set(names) - set(PARTS):
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    console = Console()
    table = Table("what", "configured", "measured")
    for name in names or PARTS:
        for what, configured, topology, measure in PARTS[name]():
            value = measured(topology, measure)
            table.add_row(what, configured, value)
            print(f"{what}, {configured}: {value}", file=sys.stderr)
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
