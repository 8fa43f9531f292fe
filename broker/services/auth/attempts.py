"""Limits on failed attempts from one address. They save work; secrets are too long to be guessed.

Failures are counted separately for each credential that exists or existed: a client's id, or an expired or revoked
token. So users learn that their credential has expired even if others at the same address make too many attempts. All
invented credentials share one count; otherwise inventing more would allow more attempts.
"""

import ipaddress
import math
import time

from broker.errors import TooManyRequests

__all__ = ["Attempts"]

MOST = 10_000
NETWORK = 64
"""Length of the IPv6 prefix that identifies a subscriber, in bits."""


class Attempts:
    """Counts of attempts by address and credential, in the memory of this process.

    :param most: attempts allowed within the period
    :param seconds: length of the period
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._made: dict[tuple[str, str], tuple[int, float]] = {}

    def check(self, address: str, credential: str = "") -> None:
        """Check that another attempt is allowed. :raises TooManyRequests: when there were too many"""
        made, until = self._made.get((_subscriber(address), credential), (0, 0.0))
        left = until - time.monotonic()
        if made >= self._most and left > 0:
            raise TooManyRequests("too many attempts from this address", "wait, then try again", math.ceil(left))

    def failed(self, address: str, credential: str = "") -> None:
        """Count a failed attempt. Successful attempts are never limited, since users may share an address.

        :param credential: credential that failed, if it exists or existed; empty for invented ones
        :raises TooManyRequests: when there were too many failures before
        """
        self.check(address, credential)
        self.count(address, credential)

    def count(self, address: str, credential: str = "") -> None:
        """Count an attempt."""
        key, now = (_subscriber(address), credential), time.monotonic()
        made, until = self._made.get(key, (0, 0.0))
        if until <= now:
            self._made.pop(key, None)
            self._make_room(now)
            made, until = 0, now + self._seconds
        self._made[key] = (made + 1, until)

    def _make_room(self, now: float) -> None:
        """Remove expired counts, which are first in the order, and the oldest counts above `MOST`."""
        while self._made:
            first = next(iter(self._made))
            if self._made[first][1] > now and len(self._made) < MOST:
                break
            del self._made[first]


def _subscriber(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:  # a Unix socket has no address
        return address
    if parsed.version == 4 or parsed.ipv4_mapped:  # dual-stack sockets show IPv4 addresses as mapped ones
        return str(parsed if parsed.version == 4 else parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, NETWORK), strict=False))
