"""Reservation of ports for servers, and waiting until servers listen.

Waiting opens no connections. It reads the kernel's list of sockets, which also shows listeners in other network
namespaces, where connections from this process cannot reach them.
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
"""Length of a line of the kernel's list in bytes."""
ANY = ("0.0.0.0", "::")
ESTABLISHED = "01"  # the kernel's state number, include/net/tcp_states.h


def reserved(host: str) -> socket.socket:
    """Return a socket bound to a free port. While it is open, the kernel gives the port to no other process.

    A server with SO_REUSEADDR (as all servers have) can listen at this port, end, and start again. While no server
    listens, connections are refused.
    """
    kept = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind((host, 0))
    return kept


def wait_until_listening(process: subprocess.Popen[bytes], host: str, port: int, seconds: float) -> bool:
    """Wait for a listener at an address in the network namespace of `process`; return whether there is one.

    Return False if the process ends, or after `seconds`.
    """
    wanted = {f"{_as_the_kernel_writes(address)}:{port:04X}" for address in (host, *ANY)}
    began = time.monotonic()
    while (waited := time.monotonic() - began) < seconds and process.poll() is None:
        if any(address in wanted for address in _listening(process.pid)):
            return True
        time.sleep(min(0.5, 0.01 + waited / 10))
    return False


def _listening(pid: int) -> Iterator[str]:
    """Yield the addresses of listeners, in hexadecimal; see proc(5), /proc/net/tcp.

    The kernel lists listeners first, and generates the list only as far as it is read. Reading stops after the
    listeners, because going through the table of all other connections takes milliseconds.
    """
    for name in ("tcp", "tcp6"):
        with suppress(OSError), Path(f"/proc/{pid}/net/{name}").open("rb", buffering=ROW) as table:  # or it has ended
            next(table, None)
            for address, state in (line.split()[1:4:2] for line in table):
                if state != LISTEN:
                    break
                yield address.decode()


def _as_the_kernel_writes(address: str) -> str:
    """Return an address in the kernel's notation: hexadecimal, each 32-bit word with its last byte first."""
    packed = ipaddress.ip_address(address).packed
    return "".join(packed[i : i + 4][::-1].hex() for i in range(0, len(packed), 4)).upper()


def connections(port: int) -> int:
    """Return the number of this machine's client connections to `port` that are open at one moment.

    The kernel's list is no picture of a moment: while it is read, a connection may close and another one open. So it
    is read twice, and only connections that are in both lists count.
    """
    return len(_clients(port) & _clients(port))


def _clients(port: int) -> set[str]:
    """Return the inodes of sockets that are connected to `port`; see proc(5), /proc/net/tcp."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == ESTABLISHED and row[2].endswith(f":{port:04X}")}
