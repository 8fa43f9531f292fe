"""The stealing rule: how much of a running range another fetcher should take over. Pure functions on numbers.

A fetcher is a source of a transfer (see `policies.adaptive`) or one of several sessions with a source (see
`engine.sessions.sharing`). A fetcher without work, the thief, takes the last bytes of the backlog of another one, the
victim. It takes:

- as many bytes as both can deliver by the time T at which all fetchers could end together, after the thief's set-up:
  the victim keeps the bytes that it can deliver by T, and the thief takes no more than it can deliver by T;
- no bytes that are in flight, as they would not arrive any earlier;
- all bytes, if the victim would keep fewer than `least`; otherwise at least that many or none;
- none, if the victim's last byte would not arrive earlier by `worth` seconds.

The end of the victim's range is lowered (see `engine.span`), and the thief fetches from there.
"""

from collections.abc import Iterable
from math import inf, log2
from typing import NamedTuple

__all__ = ["AHEAD_TRIPS", "LEAST_STEAL", "SETUP_TRIPS", "Thief", "Victim", "saves_all", "seconds_together", "stolen"]

LEAST_STEAL = 64 * 1024
"""Minimum bytes of the parts into which a range is split, if each part needs a set-up."""
LEAST_GAIN = 0.02
"""Minimum seconds that a steal must save, or the thief's set-up time if that is longer: a new connection is slow at
first, by an unknown amount.
"""
FIRST_WINDOW = 14_600
"""Bytes that TCP sends in the first round trip of a connection (RFC 6928); the number doubles with each round trip."""
AHEAD_TRIPS = 3.0
"""Maximum round trips' worth of bytes that are requested ahead over parallel streams: one until the request arrives,
and more as TCP may become faster.
"""
SETUP_TRIPS = 2
"""Round trips from requesting a range to its first byte."""


class Victim(NamedTuple):
    """A fetcher with bytes to deliver.

    :param nbytes: bytes that it still has to deliver
    :param seconds: expected time until it has delivered them; infinite if it is silent
    :param rate: bytes per second while it delivers
    :param pause: seconds of this time in which it delivers nothing
    :param in_flight: bytes that will arrive even if they are taken
    :param tail: maximum bytes that can be taken unless all are taken
    """

    nbytes: int
    seconds: float
    rate: float
    pause: float = 0.0
    in_flight: int = 0
    tail: float = inf


class Thief(NamedTuple):
    """A fetcher without work, or almost without.

    :param rate: expected bytes per second
    :param setup: expected seconds to the first byte of a range
    :param doubling: seconds in which TCP doubles its rate at first; 0 for a connection in use
    :param delay: seconds by which parallel streams delay the last byte
    :param least: minimum bytes of the parts into which a range is split
    :param busy: seconds for which it still delivers other bytes, before `setup`
    """

    rate: float
    setup: float
    doubling: float = 0.0
    delay: float = 0.0
    least: int = LEAST_STEAL
    busy: float = 0.0

    def seconds(self, nbytes: int) -> float:
        """Return the expected seconds for a new range of `nbytes`: at `rate`, or in TCP's slow start if longer."""
        growing = self.doubling * log2(1 + nbytes / FIRST_WINDOW)
        return self.busy + self.setup + max(nbytes / self.rate if self.rate > 0 else inf, growing) + self.delay

    @property
    def worth(self) -> float:
        """Return the minimum seconds that a steal must save, unless it has further costs."""
        return max(LEAST_GAIN, self.setup)


def seconds_together(thief: Thief, victims: Iterable[Victim]) -> float:
    """Return the seconds until the end if `thief` and all victims end together."""
    rate, work = thief.rate, thief.rate * (thief.busy + thief.setup + thief.delay)
    for victim in victims:
        rate, work = rate + victim.rate, work + victim.nbytes + victim.rate * victim.pause
    return work / rate if rate else inf


def stolen(victim: Victim, thief: Thief, together: float, worth: float) -> int:
    """Return the number of bytes at the end of the victim's backlog to take: some, all (`nbytes`) or 0.

    :param together: seconds until the end if all fetchers end together
    :param worth: minimum seconds by which the victim must end earlier

    >>> stolen(Victim(1_000_000, 10.0, 1e5), Thief(3e5, 0.0), together=2.5, worth=1.0)
    750000
    """
    if thief.rate <= 0:
        return 0
    spare = victim.nbytes - int(victim.rate * max(0.0, together - victim.pause))
    takes = int(thief.rate * (together - thief.busy - thief.setup - thief.delay))
    nbytes = max(0, min(victim.nbytes - victim.in_flight, spare, takes))
    if victim.nbytes - nbytes < thief.least:
        return victim.nbytes if saves_all(victim, thief, worth) else 0
    nbytes = int(min(nbytes, victim.tail))
    if nbytes < thief.least:
        return 0
    end = max(together, thief.seconds(nbytes))
    return nbytes if victim.seconds - end >= worth else 0


def saves_all(victim: Victim, thief: Thief, worth: float) -> bool:
    """Return whether `thief` would deliver all of the victim's bytes at least `worth` seconds earlier."""
    return victim.seconds - thief.seconds(victim.nbytes) >= worth
