"""The buffers that a stream of packets needs at its sender and at its receiver (IQ-Paths, section V-C). Pure."""

from bisect import bisect_right
from collections.abc import Sequence
from math import fsum, inf
from typing import NamedTuple

__all__ = ["ReceiverBuffer", "receiver_buffer", "sender_buffer"]


def sender_buffer(rate: float, services: Sequence[float]) -> float:
    """Return the mean number of packets that wait at the sender: equation 4, for a queue of type M/G/1.

    E[B] = r^2 E[S^2] / (2 (1 - r E[S])), S being the seconds in which a packet is served. (The paper divides by
    1 - E[S] / r, which has no unit and may have any sign.) Infinite if packets arrive as fast as they are served.

    Packets that arrive in bursts, or services that stay slow for many packets, need more: the formula knows neither.

    :param rate: packets that arrive per second: r
    :param services: rates at which packets were served, packets per second, each of them positive

    >>> sender_buffer(50.0, [100.0])
    0.25
    >>> round(sender_buffer(50.0, [100.0, 50.0]), 9)
    1.25
    """
    seconds = [1 / service for service in services]
    busy = rate * fsum(seconds) / len(seconds)
    if busy >= 1:
        return inf
    return rate**2 * fsum(second**2 for second in seconds) / len(seconds) / (2 * (1 - busy))


class ReceiverBuffer(NamedTuple):
    """The needs of a receiver that uses a stream evenly.

    :param delay: seconds from the first moment at which a packet could have arrived until the first is used
    :param packets: packets that it has to hold
    """

    delay: float
    packets: int


def receiver_buffer(arrivals: Sequence[float], rate: float) -> ReceiverBuffer:
    """Return what would have been needed if the packets had been used in their order, at a constant rate.

    :param arrivals: second of arrival of each packet, in the order of their numbers, not of their arrival; 0 is when
        the stream began
    :param rate: packets that are used per second

    >>> receiver_buffer([0.1, 0.5, 0.3], rate=10.0)
    ReceiverBuffer(delay=0.4, packets=2)
    """
    delay = max(arrival - number / rate for number, arrival in enumerate(arrivals))
    uses = [delay + number / rate for number in range(len(arrivals))]
    most = 0
    for number, arrival in enumerate(sorted(arrivals), 1):
        most = max(most, number - bisect_right(uses, arrival - 1e-9))
    return ReceiverBuffer(delay, most)
