"""The earliest end of a collection if links change once and the planner knows it beforehand. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from scipy.optimize import linprog
from scipy.sparse import lil_matrix

__all__ = ["Change", "clairvoyant", "kept"]

Pair = tuple[str, str]


class Change(NamedTuple):
    """A change of a pair of hosts: from `at` seconds on, it moves `rate` bytes per second."""

    at: float
    pair: Pair
    rate: float


def clairvoyant(rates: Mapping[Pair, float], supply: Mapping[str, float], sink: str, change: Change) -> float:
    """Seconds of the fastest plan for one destination that knows of a change, exactly, if bytes were a fluid.

    A linear program: what flows over each link before the change and after it, what waits at each host in between, and
    the seconds from the change to the end, which are to be the least. Storage and hosts' access are no limits.

    >>> round(clairvoyant({("a", "t"): 10.0}, {"a": 100.0}, "t", Change(5.0, ("a", "t"), 5.0)), 6)
    15.0

    :param rates: bytes per second of each pair before the change
    :param supply: bytes that lie at each host
    """
    unit = sum(supply.values())  # the solver allows errors of 1e-7: numbers should be about one
    pairs, hosts = list(rates), sorted({host for pair in rates for host in pair})
    before = [rates[pair] / unit for pair in pairs]
    after = [change.rate / unit if pair == change.pair else rates[pair] / unit for pair in pairs]
    links, columns = len(pairs), 2 * len(pairs) + len(hosts) + 1
    balance = lil_matrix((2 * len(hosts), columns))
    for row, host in enumerate(hosts):
        for period in (0, 1):
            _balance(balance, row + period * len(hosts), host, pairs, period * links)
        balance[row, 2 * links + row] = 1.0  # what waits is left over before the change, and is there after it
        balance[row + len(hosts), 2 * links + row] = -1.0
    needed = [supply.get(host, 0.0) / unit for host in hosts] + [0.0] * len(hosts)
    needed[len(hosts) + hosts.index(sink)] = -1.0
    within = lil_matrix((links, columns))
    for number in range(links):
        within[number, links + number] = 1.0
        within[number, columns - 1] = -after[number]
    bounds = [(0.0, rate * change.at) for rate in before] + [(0.0, None)] * (columns - links)
    cost = [0.0] * (columns - 1) + [1.0]
    found = linprog(cost, within.tocsr(), [0.0] * links, balance.tocsr(), needed, bounds)
    return change.at + float(found.x[-1])


def _balance(rows: lil_matrix, row: int, host: str, pairs: Sequence[Pair], first: int) -> None:
    """Return the bytes that leave a host in a period, less those that arrive."""
    for number, (source, target) in enumerate(pairs):
        if host in (source, target):
            rows[row, first + number] = 1.0 if source == host else -1.0


def kept(flows: Mapping[Pair, float], makespan: float, change: Change) -> float:
    """Return the seconds of a plan that does not react when links change.

    >>> kept({("a", "t"): 100.0}, 10.0, Change(5.0, ("a", "t"), 5.0))
    15.0

    :param flows: bytes over each pair, all evenly over `makespan` seconds
    """
    planned = flows.get(change.pair, 0.0) / makespan
    return change.at + (makespan - change.at) * max(1.0, planned / change.rate)
