"""One-by-one (Cheng, V): all files of one random host, then all of another one."""

from typing import ClassVar

from coalloc.collect.methods.concurrent import Concurrent
from coalloc.planner.network import Demand, Network

__all__ = ["OneByOne"]


class OneByOne(Concurrent):
    """Direct transfers from one host at a time: the method with the lowest load, and the slowest."""

    name: ClassVar[str] = "one-by-one"

    def __init__(self, network: Network, demand: Demand, seed: int = 0) -> None:
        super().__init__(network, demand, seed, group=1)
        self.rationale = "one host after the other sends directly to the destinations"
