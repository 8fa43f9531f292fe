"""Fixed ports for servers: reserved for them, and awaited until they listen.

No connection is made for that: the kernel's own list has the listeners, also those in other network namespaces, which
a connection from here would not reach. The same list has the open connections.
"""

import ipaddress
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

__all__ = ["connections", "reserved", "wait_until_listening"]

LISTEN = b"0A"  # the kernel's state number, include/net/tcp_states.h
ROW = 150
"""Bytes of a line of the kernel's list."""
ANY = ("0.0.0.0", "::")
ESTABLISHED = "01"  # the kernel's state number, include/net/tcp_states.h


def reserved(host: str) -> socket.socket:
    """A socket bound to a free port, which the kernel gives to no other process while it is open.

    A server that is told the number may listen there (with SO_REUSEADDR, as all do), end, and come again; meanwhile
    connections are refused.
    """
    kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host, 0))
    return kept


def wait_until_listening(process: subprocess.Popen[bytes], host: str, port: int, seconds: float) -> bool:
    """Wait for a listener at an address, in the network of `process`; return False when it ends, or at the deadline."""
    wanted = {f"{_as_the_kernel_writes(address)}:{port:04X}" for address in (host, *ANY)}
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds and process.poll() is None:
        if any(address in wanted for address in _listening(process.pid)):
            return True
        time.sleep(min(0.5, 0.01 + waited / 10))
    return False


def _listening(pid: int) -> Iterator[str]:
    """Yield the addresses with listeners, in hexadecimal; see proc(5), /proc/net/tcp.

    The kernel lists them first, and reads on only as far as it is asked: after them it goes through all that there is
    room for, which takes milliseconds.
    """
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/{pid}/net/{name}").open("rb", buffering=ROW) as table:  # or it has ended
            next(table, None)
            for address, state in (line.split()[1:4:2] for line in table):
                if state != LISTEN:
                    break
                yield address.decode()


def _as_the_kernel_writes(address: str) -> str:
    """Return 32-bit words, each with its last byte first."""
    packed = ipaddress.ip_address(address).packed
    return "".join(packed[i : i + 4][::-1].hex() for i in range(0, len(packed), 4)).upper()


def connections(port: int) -> int:
    """Return the number of connections to `port`, seen from their clients' ends; see proc(5), /proc/net/tcp."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return sum(row[3] == ESTABLISHED and row[2].endswith(f":{port:04X}") for row in rows)
