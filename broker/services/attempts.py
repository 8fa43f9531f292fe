"""How often one address may try: secrets are long enough not to be guessed, and nobody should make us try.

Who is wrong is counted apart for each credential that there is, or was: a client's id, a token that has ended. So
nobody keeps another, who has the same address, from being told that theirs has ended. All that is made up counts as
one, or who makes up more would have more attempts.
"""

import ipaddress
import math
import time

from broker.errors import TooManyRequests

__all__ = ["Attempts"]

MOST = 10_000
NETWORK = 64
"""Bits of an IPv6 address that tell subscribers apart; each has all the others."""


class Attempts:
    """Of each address, with each credential, so many within so many seconds; in this process, and forgotten with it."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most = most
        self._seconds = seconds
        self._made: dict[tuple[str, str], tuple[int, float]] = {}

    def check(self, address: str, credential: str = "") -> None:
        """:raises TooManyRequests: when there were too many"""
        made, until = self._made.get((_subscriber(address), credential), (0, 0.0))
        left = until - time.monotonic()
        if made >= self._most and left > 0:
            raise TooManyRequests("too many attempts from this address", "wait, then try again", math.ceil(left))

    def failed(self, address: str, credential: str = "") -> None:
        """Count one that was wrong. A right one is never asked: others may share its address.

        :param credential: which it was, if there is such a one; empty for all that is made up
        :raises TooManyRequests: when there were too many before
        """
        self.check(address, credential)
        self.count(address, credential)

    def count(self, address: str, credential: str = "") -> None:
        """One more was made."""
        key, now = (_subscriber(address), credential), time.monotonic()
        made, until = self._made.get(key, (0, 0.0))
        if until <= now:
            self._made.pop(key, None)
            self._make_room(now)
            made, until = 0, now + self._seconds
        self._made[key] = (made + 1, until)

    def _make_room(self, now: float) -> None:
        """Forget those whose time is over, which come first, and the one that began first if there are too many."""
        while self._made:
            first = next(iter(self._made))
            if self._made[first][1] > now and len(self._made) < MOST:
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
