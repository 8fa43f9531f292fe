"""Limits on failed attempts by one address. Secrets are too long to be guessed; the limits avoid the work of checking.

Failures are counted separately for each credential that exists or existed: a client's id, or a token that has ended
(expired or revoked). So a user still learns that their own credential has ended when others fail at the same address.
All invented credentials share one count; otherwise inventing more would give more attempts.
"""

import ipaddress
import math
import time

from broker.errors import TooManyRequests

__all__ = ["Attempts"]

MOST = 10_000
NETWORK = 64
"""Bits of an IPv6 address that identify a subscriber; the remaining bits are the subscriber's own."""


class Attempts:
    """Counts of attempts by address and credential, in the memory of this process.

    :param most: attempts that are allowed within the period
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
        """Count a failed attempt. Successful attempts are never limited, since others may share the address.

        :param credential: credential that failed, if it exists or existed; empty for invented ones
        :raises TooManyRequests: when there were too many before
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
        """Remove expired counts, which come first; if there are too many counts, remove the oldest."""
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
