"""The state of the network path of a connection's data, from the kernel (Linux, `struct tcp_info`)."""

import socket
import sys

from coalloc.model import PathState

__all__ = ["path_state_of"]

RCV_RTT, RCV_OOOPACK = 92, 224
"""Offsets of the receiver's round-trip time estimate, in microseconds, and of its count of packets out of order (since
Linux 5.4); 4 bytes each.
"""


def path_state_of(data: socket.socket) -> PathState | None:
    """Return the state of the path; None if the kernel does not report it, or not yet."""
    if not hasattr(socket, "TCP_INFO") or data.fileno() < 0:
        return None
    info = data.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, RCV_OOOPACK + 4)
    microseconds, disordered = (int.from_bytes(info[at : at + 4], sys.byteorder) for at in (RCV_RTT, RCV_OOOPACK))
    return PathState(microseconds / 1e6, disordered) if microseconds else None
