"""The common part of `spread_in_time` and `concurrent`.

Files go directly, without relays. Some source hosts begin to send, and the next ones begin later.
"""

from collections import defaultdict
from collections.abc import Iterator

from coalloc.collect.methods.actions import Action
from coalloc.collect.methods.travelling import Travelling, Trip
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = ["ByHost"]


class ByHost(Travelling):
    """A method in which all files of a host are sent together; hosts come in random order.

    :param group: number of hosts that begin together
    :raises UsageError: when `group` is less than 1
    """

    def __init__(self, network: Network, demand: Demand, seed: int = 0, *, group: int) -> None:
        if group < 1:
            raise UsageError(f"invalid size of a group: {group}", "give a group of 1 or more")
        super().__init__(network, demand, seed)
        self._group = group
        self._files: defaultdict[str, list[Trip]] = defaultdict(list)
        self._sending: dict[str, set[Trip]] = {}
        for trip in self._direct():
            self._files[trip.here].append(trip)
        self._turns = self._random.sample(sorted(self._files), len(self._files))

    def _some(self, count: int, now: float) -> Iterator[Action]:
        """Begin with the next `count` hosts."""
        for _ in range(min(count, len(self._turns))):
            host = self._turns.pop()
            self._sending[host] = set(self._files[host])
            for trip in self._files[host]:
                yield from self._go(trip, now)

    def _over(self, trip: Trip) -> None:
        for host, trips in list(self._sending.items()):
            trips.discard(trip)
            if not trips:
                del self._sending[host]
