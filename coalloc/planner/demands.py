"""Checks of a demand before it is solved, and the parts of it that need no solver."""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping

from coalloc.errors import UsageError
from coalloc.planner.limits import PlanLimits
from coalloc.planner.network import Demand, File, Network
from coalloc.planner.results import PlannedPath

__all__ = ["checked", "flow_question", "is_flow", "resting", "wanted", "with_direct_path"]


def checked(network: Network, demand: Demand) -> tuple[File, ...]:
    """Check a demand, and return its files.

    :raises UsageError: when a host is unknown, or a file has no holder or destination, or becomes available later
    """
    for file in demand.files:
        for name in (*file.holders, *file.destinations):
            if name not in network.hosts:
                raise UsageError(f"file {file.name} names the unknown host {name!r}", "add the host")
        if not file.holders or not file.destinations:
            raise UsageError(f"file {file.name} has no holder or no destination", "give at least one of each")
        if file.available:
            raise UsageError(
                f"file {file.name} becomes available later", "use a method that plans over time: path-sync, path-delay"
            )
    return demand.files


def wanted(demand: Demand, sink: str) -> list[File]:
    """Return the files that have to be sent to a host."""
    return [file for file in demand.files if file.size and sink in file.destinations and sink not in file.holders]


def with_direct_path(network: Network, demand: Demand) -> frozenset[tuple[str, str]]:
    """Return the pairs of a file and a destination to which a link from one of its holders can carry bytes."""
    limits = PlanLimits(network, None)
    sinks = {to for file in demand.files for to in file.destinations}
    sources: defaultdict[str, set[str]] = defaultdict(set)
    for key in network.links:
        if key.sink in sinks and all(limits.capacity(limit) for limit, weight in limits.by(key) if weight):
            sources[key.sink].add(key.source)
    return frozenset(
        (file.name, sink)
        for file in demand.files
        for sink in file.destinations
        if file.size and sink not in file.holders and not sources[sink].isdisjoint(file.holders)
    )


def is_flow(network: Network, demand: Demand) -> bool:
    """Return whether max-flow applies: one destination, no budget, no shared sets, and no disks that matter.

    Relayed bytes r are read and written, a host's own bytes s are only read: 2 r + s <= io x T. Max-flow can express
    this only if s is known beforehand, which is so if the host is the only holder of its files.
    """
    sinks = {sink for file in demand.files for sink in file.destinations}
    files = [file for sink in sinks for file in wanted(demand, sink)]
    copies = {holder for file in files if len(file.holders) > 1 for holder in file.holders}
    disks = any(network.hosts[name].io is not None and network.hosts[name].relays for name in copies)
    return len(sinks) <= 1 and demand.budget is None and not network.shared and not disks


def flow_question(network: Network, demand: Demand) -> tuple[str, list[File]]:
    """Return the only destination, and the files that have to be sent to it.

    :raises UsageError: when max-flow does not apply
    """
    checked(network, demand)
    if not is_flow(network, demand):
        raise UsageError(
            "max-flow does not support several destinations, shared sets, budgets, and disks of relays with replicas",
            "use coalloc.planner.plan(), which supports them all",
        )
    sink = next((sink for file in demand.files for sink in file.destinations), "")
    return sink, wanted(demand, sink)


def resting(network: Network, demand: Demand) -> Iterator[PlannedPath]:
    """Yield the paths of files that are already at a destination, and of empty files, which take no time."""
    into: dict[str, list[str]] = {name: [] for name in network.hosts}
    if not all(file.size for file in demand.files):
        for key in network.links:
            into[key.sink].append(key.source)
    for file in demand.files:
        for sink in file.destinations:
            if sink in file.holders:
                yield PlannedPath(file.name, (sink,), file.size)
            elif not file.size:
                yield PlannedPath(file.name, _fewest_hops(network, into, file, sink), 0)


def _fewest_hops(network: Network, into: Mapping[str, list[str]], file: File, sink: str) -> tuple[str, ...]:
    after: dict[str, tuple[str, ...]] = {sink: (sink,)}
    queue = deque([sink])
    while queue:
        here = queue.popleft()
        if here in file.holders:
            return after[here]
        if here != sink and not network.hosts[here].relays:
            continue
        for source in into[here]:
            if source not in after:
                after[source] = (source, *after[here])
                queue.append(source)
    raise UsageError(
        f"there is no path from {', '.join(file.holders)} to {sink}", "add links, or leave out these files"
    )
