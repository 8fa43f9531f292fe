"""The makespan of a collect job whose planner knows a change of a link in advance, or does not react to it. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # scipy takes half a second
    from scipy.sparse import lil_matrix

__all__ = ["Change", "clairvoyant", "kept"]

Pair = tuple[str, str]


class Change(NamedTuple):
    """A change of one link: from `at` seconds on, it carries `rate` bytes per second."""

    at: float
    pair: Pair
    rate: float


def clairvoyant(rates: Mapping[Pair, float], supply: Mapping[str, float], sink: str, change: Change) -> float:
    """Return the makespan in seconds of the fastest plan that knows of a change in advance; bytes flow like a fluid.

    Solves a linear program. Its variables are the flow over each link before and after the change, the bytes stored at
    each host at the time of the change, and the seconds from the change to the end, which are minimised. Storage and
    access links of hosts are unlimited.

    >>> round(clairvoyant({("a", "t"): 10.0}, {"a": 100.0}, "t", Change(5.0, ("a", "t"), 5.0)), 6)
    15.0

    :param rates: bytes per second of each link before the change
    :param supply: bytes that each host has at the start
    """
    from scipy.optimize import linprog
    from scipy.sparse import lil_matrix

    unit = sum(supply.values())  # the solver allows errors of 1e-7: numbers should be about one
    pairs, hosts = list(rates), sorted({host for pair in rates for host in pair})
    before = [rates[pair] / unit for pair in pairs]
    after = [change.rate / unit if pair == change.pair else rates[pair] / unit for pair in pairs]
    links, columns = len(pairs), 2 * len(pairs) + len(hosts) + 1
    balance = lil_matrix((2 * len(hosts), columns))
    for row, host in enumerate(hosts):
        for period in (0, 1):
            _balance(balance, row + period * len(hosts), host, pairs, period * links)
        balance[row, 2 * links + row] = 1.0  # bytes stored at the change: left over, then available
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


def _balance(rows: "lil_matrix", row: int, host: str, pairs: Sequence[Pair], first: int) -> None:
    """Write into a row the coefficients of the bytes that leave a host in a period, minus those that arrive."""
    for number, (source, target) in enumerate(pairs):
        if host in (source, target):
            rows[row, first + number] = 1.0 if source == host else -1.0


def kept(flows: Mapping[Pair, float], makespan: float, change: Change) -> float:
    """Return the makespan in seconds of a plan that is not changed when a link changes.

    >>> kept({("a", "t"): 100.0}, 10.0, Change(5.0, ("a", "t"), 5.0))
    15.0

    :param flows: bytes that the plan sends over each link, at constant rates during `makespan` seconds
    """
    planned = flows.get(change.pair, 0.0) / makespan
    return change.at + (makespan - change.at) * max(1.0, planned / change.rate)
