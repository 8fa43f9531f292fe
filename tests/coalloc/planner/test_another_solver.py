"""An independent linear program, written host by host, gives the same results as max-flow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.planner import least_makespan
from coalloc.planner.network import Demand, Network
from tests.coalloc.planner.networks import USUAL, USUAL_SIZES, demands, networks


def by_linprog(network: Network, demand: Demand) -> float:
    """Return the largest theta = 1 / T.

    The variables are link rates, bytes of holders by file, and theta, in parts of all bytes.
    """
    from scipy.optimize import linprog  # takes half a second

    files = [file for file in demand.files if file.size and "t" not in file.holders]
    total, unit = sum(file.size for file in files), max(link.capacity for link in network.links.values())
    links, sends = list(network.links), [(file.name, host) for file in files for host in file.holders]
    n = len(links) + len(sends) + 1
    equal, most = [], []

    def row(into, terms, capacity=0.0):
        values = np.zeros(n)
        for place, value in terms:
            values[place] += value
        into.append((values, capacity / unit))

    for name, host in network.hosts.items():
        out = [(i, 1.0) for i, key in enumerate(links) if key.source == name]
        come = [(i, 1.0) for i, key in enumerate(links) if key.sink == name]
        own = [(len(links) + i, 1.0) for i, (_, holder) in enumerate(sends) if holder == name]
        minus = [(i, -1.0) for i, _ in (*come, *own)]
        if name == "t":
            row(most, out)
        else:
            row(equal, [*out, *minus])
            if not host.relays:
                row(most, come)
        if host.io is not None:
            row(most, [*out, *come], host.io)
        for isp in host.isps:
            if isp.up is not None:
                row(most, [(i, 1.0) for i, _ in out if links[i].source_isp == isp.name], isp.up)
            if isp.down is not None:
                row(most, [(i, 1.0) for i, _ in come if links[i].sink_isp == isp.name], isp.down)
    for file in files:
        own = [(len(links) + i, 1.0) for i, (name, _) in enumerate(sends) if name == file.name]
        row(equal, [*own, (n - 1, -file.size / total)])
    bounds = [
        *((0, link.capacity / unit) for link in network.links.values()),
        *((0, None) for _ in range(len(sends) + 1)),
    ]
    found = linprog(
        [*np.zeros(n - 1), -1],
        A_eq=np.array([values for values, _ in equal]),
        b_eq=np.array([limit for _, limit in equal]),
        A_ub=np.array([values for values, _ in most]),
        b_ub=np.array([limit for _, limit in most]),
        bounds=bounds,
        method="highs",
    )
    return total / unit / found.x[-1] if files else 0.0


@settings(deadline=None)
@given(st.data())
def test_the_least_time(data):
    network = data.draw(networks(USUAL))
    demand = data.draw(demands(network, USUAL_SIZES))
    assert float(least_makespan(network, demand).makespan) == pytest.approx(by_linprog(network, demand), rel=1e-9)
