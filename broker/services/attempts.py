"""How often one address may try: secrets are long enough not to be guessed, and nobody should make us try."""

import ipaddress
import math
import time

from broker.errors import TooManyRequests

__all__ = ["Attempts"]

MOST_ADDRESSES = 10_000
NETWORK = 64
"""Bits of an IPv6 address that tell subscribers apart; each has all the others."""


class Attempts:
    """Of each address so many within so many seconds; in this process, and forgotten with it."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._made: dict[str, tuple[int, float]] = {}

    def check(self, address: str) -> None:
        """:raises TooManyRequests: when there were too many"""
        made, until = self._made.get(_subscriber(address), (0, 0.0))
        left = until - time.monotonic()
        if made >= self._most and left > 0:
            raise TooManyRequests("too many attempts from this address", "wait, then try again", math.ceil(left))

    def failed(self, address: str) -> None:
        """Count one that was wrong. A right one is never asked: others may share its address.

        :raises TooManyRequests: when there were too many before
        """
        self.check(address)
        self.count(address)

    def count(self, address: str) -> None:
        """One more was made."""
        subscriber, now = _subscriber(address), time.monotonic()
        made, until = self._made.get(subscriber, (0, 0.0))
        if until <= now:
            self._made.pop(subscriber, None)
            self._make_room(now)
            made, until = 0, now + self._seconds
        self._made[subscriber] = (made + 1, until)

    def _make_room(self, now: float) -> None:
        """Forget those whose time is over, which come first, and the one that began first if there are too many."""
        while self._made:
            first = next(iter(self._made))
            if self._made[first][1] > now and len(self._made) < MOST_ADDRESSES:
                break
            del self._made[first]


def _subscriber(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a socket of UNIX has none
        return address
    if parsed.version == 4 or parsed.ipv4_mapped:  # as a socket for both kinds tells IPv4
        return str(parsed if parsed.version == 4 else parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK), strict=False))
