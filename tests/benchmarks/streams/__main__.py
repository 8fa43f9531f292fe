"""Guaranteed streams in virtual time: `python -m tests.benchmarks.streams [tables] [speed] [buffers]`.

Packets are simulated one by one, on bandwidths of ../shared/data, with the product's mapping and choice of packets.
docs/explanation/streams-paper.md explains the tables.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from random import Random
from statistics import median
from time import perf_counter, process_time

from coalloc.guarantees.buffers import ReceiverBuffer, receiver_buffer, sender_buffer
from coalloc.guarantees.mapping import Placement, map_streams
from coalloc.guarantees.packets import PacketScheduler
from coalloc.guarantees.streams import Stream
from tests.benchmarks.streams.experiments import EXPERIMENTS, FRAMES, Feed
from tests.benchmarks.streams.rivals import POLICIES, PathGuarantees, Policy
from tests.benchmarks.streams.simulation import Deliveries, simulate
from tests.benchmarks.streams.tables import SECONDS, paths_of, show_tables
from tests.benchmarks.streams.traces import CrossedPath

PACKETS = 200_000


def show_speed() -> None:
    """Print the packets per second, and the milliseconds of a mapping, for 8 paths and 100 streams."""
    chance = Random(1)
    rates = {f"path {number}": sorted(chance.lognormvariate(16, 0.5) for _ in range(500)) for number in range(8)}
    print("| load, % of the mean | guaranteed | mapping, ms | packets per second | of processor time |")
    print("|---|---|---|---|---|")
    for load in (0.2, 0.7, 2.0):
        mean = load * sum(map(sum, rates.values())) / 500 / 90
        streams = [
            Stream(f"stream {number}", mean * chance.uniform(0.2, 1.8) if number % 10 else None, level)
            for number in range(100)
            for level in [chance.choice([0.9, 0.95, 0.99])]
        ]
        spent = []
        for _ in range(9):
            begin = process_time()
            placements = map_streams(streams, rates)
            spent.append(process_time() - begin)
        scheduler = PacketScheduler(list(rates))
        scheduler.place(placements, 0.0)
        for stream in streams:
            scheduler.arrived(stream.name, PACKETS)
        real, used = _seconds_of_packets(scheduler, sum(map(sum, rates.values())) / 500 / streams[0].packet)
        holds = sum(each.holds for each in placements) - 10
        cells = [f"{holds} of 90", f"{1000 * median(spent):.1f}", f"{PACKETS / real:,.0f}", f"{PACKETS / used:,.0f}"]
        print(f"| {100 * load:.0f} | {' | '.join(cells)} |", flush=True)


def _seconds_of_packets(scheduler: PacketScheduler, rate: float) -> tuple[float, float]:
    now, number = 0.0, 0
    began, begin = perf_counter(), process_time()
    while number < PACKETS:
        for path in scheduler.visits:
            if packet := scheduler.next(path, now):
                scheduler.sent(path, packet)
            now += 1 / rate
            number += 1
    return perf_counter() - began, process_time() - begin


def show_buffers() -> None:
    """Print the packets that the sender and the receiver of guaranteed streams need, as forecast and in fact."""
    experiment = EXPERIMENTS["III"]
    print("| variation | stream | schedule | sender: forecast | mean | most | receiver: forecast | needed", end="")
    print(" | delay: forecast, ms | needed |\n|---|---|---|---|---|---|---|---|---|---|")
    for full in (False, True):
        paths = paths_of(experiment, "puffer", 0, full)
        for schedule in ("round robin", "MSFQ", "PGOS"):
            policy = POLICIES[schedule](experiment.feeds, list(paths))
            found = simulate(policy, experiment.feeds, paths, SECONDS, 0)
            for feed in experiment.feeds[:2]:
                services = _services(feed, experiment.feeds, policy, paths)
                cells = [
                    _number(sender_buffer(feed.target * 1e6 / 8 / feed.packet, services)),
                    *_waiting(found[feed.name]),
                ]
                halves = [_needs(found[feed.name], part) for part in (0, 1)]
                cells += [str(each.packets) for each in halves] + [f"{1000 * each.delay:.0f}" for each in halves]
                print(f"| {'full' if full else 'paper'} | {feed.name} | {schedule} | {' | '.join(cells)} |", flush=True)


def _services(feed: Feed, feeds: Sequence[Feed], policy: Policy, paths: Mapping[str, CrossedPath]) -> list[float]:
    """Return the packets per second with which a stream could have been served in each past window, at least one."""
    windows = list(zip(*(path.past for path in paths.values()), strict=True))
    if not isinstance(policy, PathGuarantees):
        share = feed.target / sum(each.target for each in feeds)
        return [max(1.0, share * sum(window) / feed.packet) for window in windows]
    of = {each.stream.name: each for each in policy.placements}
    found = []
    for window in windows:
        rates = dict(zip(paths, window, strict=True))
        others = sum((each.guaranteed or 0) * 1e6 / 8 for each in feeds if each is not feed and _meet(of, each, feed))
        found.append(max(1.0, (sum(rates[path] for path in of[feed.name].packets) - others) / feed.packet))
    return found


def _meet(placements: Mapping[str, Placement], one: Feed, other: Feed) -> bool:
    return bool(set(placements[one.name].packets) & set(placements[other.name].packets))


def _waiting(stream: Deliveries) -> tuple[str, str]:
    """Return the mean and the most packets that waited at the sender."""
    edges = [0, *accumulate(stream.frames)]
    arrivals = [tick / FRAMES for tick, count in enumerate(stream.frames) for _ in range(count)]
    begins = sorted(stream.begins.values())
    total = sum((stream.begins.get(number, SECONDS) - arrival) for number, arrival in enumerate(arrivals))
    most, begun = 0, 0
    for tick, arrived in enumerate(edges[1:]):
        while begun < len(begins) and begins[begun] <= tick / FRAMES:
            begun += 1
        most = max(most, arrived - begun)
    return f"{total / SECONDS:.1f}", str(most)


def _needs(stream: Deliveries, half: int) -> ReceiverBuffer:
    """Return the needs of the receiver for the packets of the first or the second half of the time."""
    edges = [0, *accumulate(stream.frames)]
    middle = edges[len(stream.frames) // 2]
    first, last = (0, middle) if half == 0 else (middle, max(stream.ends) + 1)
    begin = half * SECONDS / 2
    arrivals = [stream.ends[number] - begin for number in range(first, last) if number in stream.ends]
    return receiver_buffer(arrivals, stream.feed.target * 1e6 / 8 / stream.feed.packet)


def _number(value: float) -> str:
    return "no bound" if value > 1e9 else f"{value:.1f}"


PARTS: Mapping[str, Callable[[], None]] = {"tables": show_tables, "speed": show_speed, "buffers": show_buffers}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
