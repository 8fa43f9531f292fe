"""Random transit-stub networks like GT-ITM's, with the sizes of Cheng's section VI: 152 nodes, two transit domains.

Each transit node has its own stub domains. Two peering points, (A0, B0) and (A1, B1), connect the transit domains A
and B.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from random import Random

__all__ = ["PEERINGS", "Edge", "TransitStub"]

DOMAINS = ("A", "B")
TRANSIT_NODES = 4
STUBS = 3
STUB_NODES = 6
TRANSIT_EDGES, STUB_EDGES = 0.6, 0.2
"""Probability of an edge between two nodes of a transit domain, and of a stub domain."""
PEERINGS = (("A0", "B0"), ("A1", "B1"))

MBIT = 1e6 / 8
WITHIN, ACROSS, BELOW = 10 * MBIT, 5 * MBIT, 2.5 * MBIT
"""Capacities of edges in bytes per second: within a transit domain, between the two, and all others."""

Edge = tuple[str, str]
"""One direction of an edge: the node from which it leads, and the node to which it leads."""


@dataclass(frozen=True)
class TransitStub:
    """A network: the capacities of its edges in bytes per second.

    A node's name contains its domains: "A1.0.3" is node 3 of stub domain 0 of transit node A1.
    """

    edges: dict[Edge, float]

    @classmethod
    def drawn(cls, draw: Random) -> "TransitStub":
        """Draw a random network."""
        edges: dict[Edge, float] = {}
        for domain in DOMAINS:
            transit = [f"{domain}{number}" for number in range(TRANSIT_NODES)]
            edges |= dict.fromkeys(_joined(transit, TRANSIT_EDGES, draw), WITHIN)
            for gate in transit:
                for stub in range(STUBS):
                    nodes = [f"{gate}.{stub}.{number}" for number in range(STUB_NODES)]
                    inside = [*_joined(nodes, STUB_EDGES, draw), (gate, draw.choice(nodes))]
                    edges |= dict.fromkeys(inside, BELOW)
        edges |= dict.fromkeys(PEERINGS, ACROSS)
        return cls(edges | {(end, start): capacity for (start, end), capacity in edges.items()})

    def stub(self, gate: str, number: int) -> list[str]:
        """Return the nodes of a stub domain.

        :param gate: the transit node to which it belongs
        """
        return [f"{gate}.{number}.{node}" for node in range(STUB_NODES)]

    @property
    def nodes(self) -> set[str]:
        """Return the names of all nodes."""
        return set(self._neighbours)

    @cached_property
    def _neighbours(self) -> dict[str, list[str]]:
        neighbours: dict[str, list[str]] = {}
        for start, end in self.edges:
            neighbours.setdefault(start, []).append(end)
        return neighbours

    def route(self, start: str, end: str) -> list[Edge]:
        """Return a path with the fewest hops, as ns-2 does; of several such paths always the same one."""
        towards = {end: end}
        queue = deque([end])
        while start not in towards:
            node = queue.popleft()
            for neighbour in self._neighbours[node]:
                if neighbour not in towards:
                    towards[neighbour] = node
                    queue.append(neighbour)
        return list(_steps(start, end, towards))


def _steps(start: str, end: str, towards: dict[str, str]) -> Iterator[Edge]:
    while start != end:
        yield start, towards[start]
        start = towards[start]


def _joined(nodes: list[str], likely: float, draw: Random) -> list[Edge]:
    """Return random edges, drawn until they connect all nodes."""
    while True:
        edges = [pair for pair in combinations(nodes, 2) if draw.random() < likely]
        parts = {node: {node} for node in nodes}
        for start, end in edges:
            whole = parts[start] | parts[end]
            parts |= dict.fromkeys(whole, whole)
        if len(parts[nodes[0]]) == len(nodes):
            return edges
