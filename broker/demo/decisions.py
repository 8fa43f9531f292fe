"""The decisions of the demonstration: chosen replicas, their forecasts, and the results."""

import math
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

from broker.demo.sharing import DemoServer, shared
from broker.demo.traffic import rate
from broker.demo.world import DAY, PEOPLE, WEEKS, DemoLink, World
from broker.models.catalogue import Dataset
from broker.models.decisions import Expectation, Range, ReportedDecision, SourcePart
from broker.models.names import split

__all__ = ["DemoDownload", "decided", "downloads"]

DOWNLOADS = 500
FAULTS = {"failed": "the connection was lost: Connection reset by peer", "stalled": "no byte came for 10 seconds"}
STRATEGIES = ("adaptive",) * 7 + ("aggressive", "conservative", "single")
OFF = 0.35
"""Standard deviation of the logarithm of forecast / actual."""
WIDTH = math.exp(0.45)
MISHAPS = (0.06, 0.12)
"""Share of downloads in which a server stalls, and in which a server stalls or fails."""


class DemoDownload(NamedTuple):
    """A dataset that a user fetched to a site, `age` seconds before the end of the history."""

    subject: str
    dataset: Dataset
    sink: str
    age: float


def downloads(made: World, seed: int) -> Iterator[DemoDownload]:
    """Yield the downloads that belong to no task, the oldest first."""
    chance = Random(f"downloads {seed}")
    large = [dataset for dataset in made.datasets if (dataset.size or 0) > 100e6]
    for age in sorted((chance.uniform(0.02, WEEKS * 7) * DAY for _ in range(DOWNLOADS)), reverse=True):
        yield DemoDownload(chance.choice(PEOPLE), chance.choice(large), chance.choice(made.sites).name, age)


def decided(made: World, download: DemoDownload, key: str, seed: int, end: float) -> ReportedDecision | None:
    """Return a decision and its result; None if fewer than two replicas have a link to the sink."""
    chance = Random(f"decision {seed} {key}")
    endpoints = {each.endpoint for each in made.replicas if each.dataset == download.dataset.name}
    links = [link for link in made.links if link.sink == download.sink and link.source.name in endpoints]
    if len(links) < 2:
        return None
    size, strategy = download.dataset.size or 0, chance.choice(STRATEGIES)
    rates = [rate(link, download.age, chance.gauss(0, 1), size // len(links)) for link in links]
    forecasts = [each * chance.lognormvariate(0.05, OFF) for each in rates]
    worth = [size / (link.setup + size / each) for link, each in zip(links, forecasts, strict=True)]
    plan = _plan(size, worth, alone=strategy == "single")
    servers = [DemoServer(link.setup, *each) for link, each in zip(links, zip(rates, plan, strict=True), strict=True)]
    if sum(1 for each in plan if each) > 1:
        servers = _mishap(servers, chance)
    ranges = shared(servers)
    parts = [_part(link, i, forecasts[i], plan[i], ranges, download.dataset) for i, link in enumerate(links)]
    over = max(each.over or 0.0 for each in ranges)
    best = max(range(len(links)), key=worth.__getitem__)
    return ReportedDecision(
        id=key,
        at=end - download.age,
        kind="download",
        thing=download.dataset.name,
        sink=download.sink,
        bytes=size,
        moved=size,
        strategy=strategy,
        rationale=f"{links[best].source.name} should be the fastest, at {forecasts[best] / 1e6:.0f} MB/s",
        outcome="ok",
        seconds=over + 0.5,
        fetch_seconds=max(each.last or 0.0 for each in ranges),
        sources=parts,
        ranges=ranges,
        range_count=len(ranges),
    )


def _plan(size: int, worth: Sequence[float], alone: bool) -> list[int]:
    """Return the bytes for each source, in proportion to its `worth`; if `alone`, the best source gets all."""
    if alone:
        return [size if each == max(worth) else 0 for each in worth]
    shares = [int(size * each / sum(worth)) for each in worth]
    return [size - sum(shares[1:]), *shares[1:]]


def _mishap(servers: list[DemoServer], chance: Random) -> list[DemoServer]:
    """Return the servers; in some downloads, one of them stops midway."""
    drawn, i = chance.random(), chance.randrange(len(servers))
    if drawn > MISHAPS[1]:
        return servers
    victim = servers[i]
    stops = victim.setup + chance.uniform(0.2, 0.8) * victim.planned / victim.rate
    return [*servers[:i], victim._replace(stops=stops, fails=drawn > MISHAPS[0]), *servers[i + 1 :]]


def _part(
    link: DemoLink, i: int, forecast: float, planned: int, ranges: Sequence[Range], dataset: Dataset
) -> SourcePart:
    mine = [each for each in ranges if each.source == i]
    flowed = [(each.first, each.last) for each in mine if each.first is not None and each.last is not None]
    error = next((FAULTS[each.ending] for each in mine if each.ending in FAULTS), None)
    return SourcePart(
        source=link.source.source,
        url=link.source.url("/".join(split(dataset.name))),
        rate=Expectation(p10=forecast / WIDTH, p50=forecast, p90=forecast * WIDTH),
        setup_expected=link.setup,
        reason=f"{link.source.name} has been at {forecast / 1e6:.0f} MB/s",
        planned_bytes=planned,
        bytes=sum(each.bytes for each in mine),
        seconds=sum((each.over or each.asked) - each.asked for each in mine),
        setup_seconds=link.setup if mine else None,
        start_seconds=link.setup if mine else None,
        flow_seconds=sum(last - first for first, last in flowed),
        streams=4,
        outcome="unused" if not mine else "failed" if error else "ok",
        error=error,
    )
