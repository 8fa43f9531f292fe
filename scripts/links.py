"""A private network for the demo: servers behind links of different rates, isolated from the machine's network.

`enter` runs a command in new namespaces for network, mounts and processes; `build` creates the links there. The kernel
removes them when the command ends. Root is not needed if the kernel lets users create namespaces, as on Debian.
`scripts.demo` starts the servers and coget.

    client ── 10.77.1.1 ══ token bucket ══ 10.77.1.2 ── fast
           ── 10.77.2.1 ══ token bucket ══ 10.77.2.2 ── middle
           ── 10.77.3.1 ══ token bucket ══ 10.77.3.2 ── slow
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["LINKS", "Link", "build", "enter", "refusal", "server_prefix"]

HOSTS = Path("/run/hosts")
TRY_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Link:
    """The link to one server.

    :param number: determines the addresses of both ends
    :param mbit: rate from the server to the client in Mbit/s
    """

    name: str
    number: int
    mbit: int

    @property
    def client(self) -> str:
        return f"10.77.{self.number}.1"

    @property
    def server(self) -> str:
        return f"10.77.{self.number}.2"


LINKS = (Link("fast", 1, 400), Link("middle", 2, 200), Link("slow", 3, 100))


def enter(command: Sequence[str]) -> list[str]:
    """Return the arguments that run `command` as root of new namespaces; it is killed when this process ends."""
    words = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        words.append("--map-root-user")
    return [*words, *command]


def server_prefix(link: Link, uid: int, gid: int) -> list[str]:
    """Return the arguments before a server's command that run it at the server's end of `link`.

    :param uid: id of the user outside the namespaces, under which the server runs: as root, globus-gridftp-server
        would change groups, which a user's namespace forbids
    """
    words = ["ip", "netns", "exec", link.name]
    if uid != 0:
        words += ["unshare", "--user", f"--map-user={uid}", f"--map-group={gid}"]
    return words


def refusal() -> str | None:
    """Build the network for a test; return the reason why this machine cannot, or None if it can."""
    try:
        tried = subprocess.run(
            enter([sys.executable, "-m", "scripts.links"]), capture_output=True, text=True, timeout=TRY_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if tried.returncode == 0:
        return None
    return (tried.stderr.strip().splitlines() or ["the kernel gave no reason"])[-1]


def build() -> None:
    """Create the links, inside the namespaces of `enter`.

    :raises OSError: when the kernel refuses, or a tool is missing
    """
    _run("mount -t tmpfs tmpfs /run")  # `ip netns` stores its names there; they are invisible outside the namespaces
    _run("ip link set lo up")
    for link in LINKS:
        _lay(link)
    # Both Globus programs look up their own addresses, and this network has no DNS.
    names = [("127.0.0.1", "localhost"), *((link.server, link.name) for link in LINKS)]
    names += [(link.client, f"client-{link.name}") for link in LINKS]
    HOSTS.write_text("".join(f"{address} {name}\n" for address, name in names))
    _run(f"mount --bind {HOSTS} /etc/hosts")


def _lay(link: Link) -> None:
    near, far = f"to-{link.name}", "eth0"
    _run(f"ip netns add {link.name}")
    _run(f"ip link add {near} type veth peer name {far} netns {link.name}")
    _run(f"ip address add {link.client}/30 dev {near}")
    _run(f"ip link set {near} up")
    _run(f"ip -n {link.name} address add {link.server}/30 dev {far}")
    _run(f"ip -n {link.name} link set lo up")
    _run(f"ip -n {link.name} link set {far} up")
    # The burst must hold the largest packet that segmentation offload makes, 64 KiB.
    _run(f"tc -n {link.name} qdisc add dev {far} root tbf rate {link.mbit}mbit burst 256kb latency 50ms")


def _run(command: str) -> None:
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{command}: {done.stderr.strip()}")


if __name__ == "__main__":
    try:
        build()
    except OSError as error:
        sys.exit(str(error))
