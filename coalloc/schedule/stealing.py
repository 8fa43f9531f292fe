"""The rule for stealing: how much of a running range another fetcher should take over. Pure functions on numbers.

A fetcher is a source of a transfer (see `policies.adaptive`) or one of several sessions with a source (see
`engine.sessions.sharing`). One without work, the thief, takes the tail of what another one, the victim, still has to
deliver:

- as much as lets both end when all could end together, the thief's set-up included: what the victim delivers by then
  stays with it, and no more is taken than the thief can deliver by then;
- no bytes that are on their way already, since taking them makes nothing arrive earlier;
- all bytes, where the victim would be left with next to nothing; else no tail shorter than that;
- nothing, unless the victim's last byte then arrives earlier by a least number of seconds.

The victim's range gets a lower end (see `engine.span`), and the thief fetches from there.
"""

from collections.abc import Iterable
from math import inf, log2
from typing import NamedTuple

__all__ = ["LEAST_STEAL", "SETUP_TRIPS", "Thief", "Victim", "saves_all", "seconds_together", "stolen"]

LEAST_STEAL = 64 * 1024
"""Bytes below which a range is not split any further, if each costs a set-up."""
LEAST_GAIN = 0.02
"""Least seconds that the victim must end earlier for a range to be moved, if the thief's set-up is not longer: a new
connection is slow at first, by an unknown amount.
"""
FIRST_WINDOW = 14_600
"""Bytes that TCP sends in the first round trip of a connection (RFC 6928); twice as many in each that follows."""
SETUP_TRIPS = 2
"""Round trips from requesting a range to its first byte."""


class Victim(NamedTuple):
    """A fetcher with bytes to deliver.

    :param nbytes: bytes that it still has to deliver
    :param seconds: expected time until it has delivered them; infinite if it is silent
    :param rate: bytes per second while it delivers
    :param pause: seconds of that time in which it delivers nothing
    :param in_flight: bytes that arrive whatever is taken
    :param tail: bytes at the end that can be taken without those before them, if fewer than all
    """

    nbytes: int
    seconds: float
    rate: float
    pause: float = 0.0
    in_flight: int = 0
    tail: float = inf


class Thief(NamedTuple):
    """A fetcher without work.

    :param rate: expected bytes per second
    :param setup: expected seconds to the first byte of a range
    :param doubling: seconds in which TCP doubles the rate at the beginning; 0 for a connection in use
    :param delay: seconds by which parallel streams delay the last byte
    :param least: bytes below which a range is not split any further
    """

    rate: float
    setup: float
    doubling: float = 0.0
    delay: float = 0.0
    least: int = LEAST_STEAL

    def seconds(self, nbytes: int) -> float:
        """Return the expected seconds for a new range, at the thief's rate or in TCP's slow start if that is slower."""
        growing = self.doubling * log2(1 + nbytes / FIRST_WINDOW)
        return self.setup + max(nbytes / self.rate if self.rate > 0 else inf, growing) + self.delay

    @property
    def worth(self) -> float:
        """Return the seconds that a steal must save at least, unless it has further costs."""
        return max(LEAST_GAIN, self.setup)


def seconds_together(thief: Thief, victims: Iterable[Victim]) -> float:
    """Return the seconds until the end if all fetchers with bytes to deliver, and `thief`, end together."""
    rate, work = thief.rate, thief.rate * (thief.setup + thief.delay)
    for victim in victims:
        rate, work = rate + victim.rate, work + victim.nbytes + victim.rate * victim.pause
    return work / rate if rate else inf


def stolen(victim: Victim, thief: Thief, together: float, worth: float) -> int:
    """Return how many bytes at the end of the victim's backlog `thief` should take: some, all (`nbytes`) or none.

    :param together: seconds until the end if all fetchers end together
    :param worth: least seconds by which the victim has to end earlier

    >>> stolen(Victim(1_000_000, 10.0, 1e5), Thief(3e5, 0.0), together=2.5, worth=1.0)
    750000
    """
    if thief.rate <= 0:
        return 0
    spare = victim.nbytes - int(victim.rate * max(0.0, together - victim.pause))
    takes = int(thief.rate * (together - thief.setup - thief.delay))
    nbytes = max(0, min(victim.nbytes - victim.in_flight, spare, takes))
    if victim.nbytes - nbytes < thief.least:
        return victim.nbytes if saves_all(victim, thief, worth) else 0
    nbytes = int(min(nbytes, victim.tail))
    if nbytes < thief.least:
        return 0
    end = max(together, thief.seconds(nbytes))
    return nbytes if victim.seconds - end >= worth else 0


def saves_all(victim: Victim, thief: Thief, worth: float) -> bool:
    """Return whether the end would be earlier by `worth` seconds if `thief` delivered all of the victim's bytes."""
    return victim.seconds - thief.seconds(victim.nbytes) >= worth
