"""The methods of collecting, one per module. Pure."""

from inspect import signature
from typing import Any

from coalloc.collect.methods.adaptive.method import AdaptiveCollecting
from coalloc.collect.methods.all_at_once import AllAtOnce
from coalloc.collect.methods.base import Method
from coalloc.collect.methods.best_path import BestPath
from coalloc.collect.methods.concurrent import Concurrent
from coalloc.collect.methods.one_by_one import OneByOne
from coalloc.collect.methods.path_delay import PathDelay
from coalloc.collect.methods.path_sync import PathSync
from coalloc.collect.methods.spread_in_time import SpreadInTime
from coalloc.errors import UsageError
from coalloc.planner.network import Demand, Network

__all__ = [
    "METHODS",
    "AdaptiveCollecting",
    "AllAtOnce",
    "BestPath",
    "Concurrent",
    "Method",
    "OneByOne",
    "PathDelay",
    "PathSync",
    "SpreadInTime",
    "make",
]

METHODS: dict[str, type[Method]] = {
    each.name: each
    for each in (AdaptiveCollecting, AllAtOnce, OneByOne, SpreadInTime, Concurrent, BestPath, PathSync, PathDelay)
}


def make(name: str, network: Network, demand: Demand, **parameters: Any) -> Method:
    """Create a method by its name.

    :raises UsageError: when the name or a parameter is unknown, or the method does not support the demand
    """
    if name not in METHODS:
        raise UsageError(f"unknown method {name!r}", f"choose one of {', '.join(METHODS)}")
    taken = set(signature(METHODS[name]).parameters) - {"network", "demand"}
    if strange := parameters.keys() - taken:
        raise UsageError(
            f"{name} does not have the option {', '.join(sorted(strange))}", f"use {', '.join(sorted(taken))}"
        )
    return METHODS[name](network, demand, **parameters)
