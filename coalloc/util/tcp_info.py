"""Measurements of a connection by the kernel (Linux, `struct tcp_info` of linux/tcp.h)."""

import socket
import sys
from typing import NamedTuple

from coalloc.model.routes import PathState

__all__ = ["SentState", "least_round_trip", "path_state_of", "sent_state_of"]

RCV_RTT, RCV_OOOPACK = slice(92, 96), slice(224, 228)
"""Bytes of the receiver's round-trip time estimate, in microseconds, and of its count of packets out of order (since
Linux 5.4).
"""
LEAST_RTT, DELIVERY_RATE, BYTES_SENT, BYTES_RETRANS = slice(148, 152), slice(160, 168), slice(200, 208), slice(208, 216)
"""Bytes of tcpi_min_rtt, in microseconds, of tcpi_delivery_rate, in bytes per second, and of the numbers of bytes sent,
those sent again included, and of those sent again (since Linux 4.19).
"""
FLAGS, APP_LIMITED = 7, 1 if sys.byteorder == "little" else 128
"""Byte and bit of tcpi_delivery_rate_app_limited: whether the rate is only that of the program."""
UNKNOWN = (0, 2**32 - 1)
"""Values of tcpi_min_rtt before the first measurement."""


class SentState(NamedTuple):
    """The state of a connection's bytes to the peer.

    :param round_trip: shortest round-trip time in seconds so far; None if unknown
    :param sent: bytes sent, those sent again included
    :param sent_again: bytes sent again
    :param rate: last delivery rate, in bytes per second; None if unknown, or if the program had too few bytes to send
    """

    round_trip: float | None
    sent: int
    sent_again: int
    rate: float | None


def path_state_of(data: socket.socket) -> PathState | None:
    """Return the state of the path; None if the kernel does not report it, or not yet."""
    if not hasattr(socket, "TCP_INFO") or data.fileno() < 0:
        return None
    info = _info(data, RCV_OOOPACK)
    microseconds = _number(info, RCV_RTT)
    return PathState(microseconds / 1e6, _number(info, RCV_OOOPACK)) if microseconds else None


def sent_state_of(sock: socket.socket) -> SentState:
    """Return the state of the bytes sent. :raises OSError: if this is not a TCP connection"""
    info = _info(sock, BYTES_RETRANS)
    rate = 0 if info[FLAGS] & APP_LIMITED else _number(info, DELIVERY_RATE)
    return SentState(_least(info), _number(info, BYTES_SENT), _number(info, BYTES_RETRANS), rate or None)


def least_round_trip(sock: socket.socket) -> float | None:
    """Return the shortest round-trip time in seconds so far; None if unknown. :raises OSError: as `sent_state_of`"""
    return _least(_info(sock, LEAST_RTT))


def _least(info: bytes) -> float | None:
    least = _number(info, LEAST_RTT)
    return None if least in UNKNOWN else least / 1e6


def _info(sock: socket.socket, last: slice) -> bytes:
    """Return the kernel's structure up to a field; an older kernel fills less of it, and the rest is zero."""
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, last.stop).ljust(last.stop, b"\0")


def _number(info: bytes, field: slice) -> int:
    return int.from_bytes(info[field], sys.byteorder)
