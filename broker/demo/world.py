"""The entities of the demonstration: sites, endpoints, links, datasets and replicas."""

import hashlib
from collections.abc import Sequence
from random import Random
from typing import Literal, NamedTuple

from broker.models.catalogue import CatalogueReplica, Dataset, Endpoint, Scheme, Site
from broker.models.collections import NewCollection
from broker.services.network.places import kilometres

__all__ = ["DAY", "PEOPLE", "PROBER", "WEEKS", "Bad", "DemoLink", "Story", "World", "world"]

DAY = 86_400.0
WEEKS = 8
PEOPLE = ("ann", "ben", "cleo")
PROBER = "broker"
DATASETS = 140
LINKS = 22
"""Number of links."""
SECONDS_PER_KM = 2 / 200_000 * 1.5
"""Round-trip seconds per km of distance, for light in fibres that are 1.5 times as long."""
ROUND_TRIPS = 5
"""Round trips from the request for a file to its first byte."""

Story = Literal["", "drifting", "worse", "stale", "rare", "probed"]
"""Changes of links over the weeks, which reports should show; empty for none.

- "drifting": becomes slower from week to week
- "worse": varies more since a week, so that its forecasts are less accurate
- "stale": not used in the last weeks
- "rare": rarely used
- "probed": used only by the broker's measurements
"""
STORIES: tuple[Story, ...] = ("drifting", "worse", "stale", "rare", "probed", "probed")

SITES = (
    Site(name="geneva", latitude=46.2, longitude=6.05),
    Site(name="hamburg", latitude=53.57, longitude=9.88),
    Site(name="oxford", latitude=51.57, longitude=-1.31),
    Site(name="chicago", latitude=41.83, longitude=-88.26),
    Site(name="kyoto", latitude=35.03, longitude=135.78),
    Site(name="canberra", latitude=-35.28, longitude=149.13),
)
SERVERS: tuple[tuple[str, str, Scheme, int], ...] = (
    ("geneva-dtn1", "geneva", "gsiftp", 1),
    ("geneva-tape", "geneva", "gsiftp", 0),
    ("hamburg-dtn1", "hamburg", "gsiftp", 1),
    ("oxford-web", "oxford", "https", 0),
    ("chicago-dtn1", "chicago", "gsiftp", 1),
    ("chicago-dtn2", "chicago", "gsiftp", 1),
    ("kyoto-dtn1", "kyoto", "gsiftp", 1),
    ("canberra-dtn1", "canberra", "ftp", 1),
)
ENDPOINTS = tuple(
    Endpoint(name=name, site=site, scheme=scheme, host=f"{name}.example", prefix="/data", write_priority=priority)
    for name, site, scheme, priority in SERVERS
)
COLLECTIONS = (
    NewCollection(name="All datasets", kind="catalogue", description="The catalogue, as files"),
    NewCollection(name="Geneva data", endpoint="geneva-dtn1", base="/data", concurrency=8),
    NewCollection(name="Chicago store", endpoint="chicago-dtn1", base="/data"),
    NewCollection(name="Kyoto archive", endpoint="kyoto-dtn1", base="/data", concurrency=4),
    NewCollection(name="Hamburg scratch", endpoint="hamburg-dtn1", base="/data/scratch"),
)
SCOPES = (("run1", "hits", 0.4e9), ("run2", "tracks", 1.6e9), ("sim3", "events", 5e9), ("notes", "table", 3e6))
REASONS = (
    "its adler32 is not that of the dataset",
    "it has 4096 bytes less than the dataset",
    "three transfers in a row ended with another sha256",
)
MOVED, AWAY = 0.03, {"state": "TEMPORARY_UNAVAILABLE", "reason": "the server is being moved"}


class DemoLink(NamedTuple):
    """A link from an endpoint to a site.

    :param rate: bytes per second of a large file at the quietest hour
    :param spread: standard deviation of the natural logarithm of the rate
    :param swing: decrease of that logarithm from the quietest to the busiest hour
    :param setup: seconds to the first byte
    :param a_day: transfers a day, on average
    :param failing: share of transfers that fail
    :param story: its change over the weeks, if any
    """

    source: Endpoint
    sink: str
    rate: float
    spread: float
    swing: float
    setup: float
    a_day: float
    failing: float
    story: Story


class Bad(NamedTuple):
    """A replica that a user marked as bad, `age` seconds before the end of the history."""

    replica: CatalogueReplica
    by: str
    age: float


class World(NamedTuple):
    """All entities of the demonstration."""

    sites: Sequence[Site]
    endpoints: Sequence[Endpoint]
    collections: Sequence[NewCollection]
    links: Sequence[DemoLink]
    datasets: Sequence[Dataset]
    replicas: Sequence[CatalogueReplica]
    bad: Sequence[Bad]


def world(seed: int) -> World:
    """Return the entities for a seed."""
    datasets = _datasets(Random(f"datasets {seed}"))
    replicas = _replicas(datasets, Random(f"replicas {seed}"))
    links = _links(Random(f"ways {seed}"))
    bad = _bad(replicas, Random(f"bad {seed}"))
    return World(SITES, ENDPOINTS, COLLECTIONS, links, datasets, replicas, bad)


def _links(chance: Random) -> list[DemoLink]:
    """Return `LINKS` random links between endpoints and sites; the last ones have the `STORIES`."""
    possible = [(endpoint, site) for endpoint in ENDPOINTS for site in SITES if endpoint.site != site.name]
    chance.shuffle(possible)
    chosen = enumerate(possible[:LINKS], len(STORIES) - LINKS)
    return [_link(*ends, STORIES[i] if i >= 0 else "", chance) for i, ends in chosen]


def _link(source: Endpoint, sink: Site, story: Story, chance: Random) -> DemoLink:
    here = next(site for site in SITES if site.name == source.site)
    away = kilometres(_coordinates(here), _coordinates(sink)) or 0.0
    rate = 400e6 / (1 + away / 2500) * chance.lognormvariate(0.0, 0.4)
    setup = 0.05 + ROUND_TRIPS * away * SECONDS_PER_KM + (25.0 if source.name.endswith("tape") else 0.0)
    often = {"rare": 0.12, "probed": 1.0}.get(story) or chance.uniform(10, 29)
    failing = chance.choice((0.005, 0.01, 0.02, 0.08))
    return DemoLink(
        source,
        sink.name,
        rate,
        chance.uniform(0.1, 0.3),
        chance.uniform(0.2, 0.8),
        setup,
        often,
        failing,
        story,
    )


def _coordinates(site: Site) -> tuple[float, float]:
    return site.latitude or 0.0, site.longitude or 0.0


def _datasets(chance: Random) -> list[Dataset]:
    made = []
    for number in range(DATASETS):
        scope, kind, size = SCOPES[number % len(SCOPES)]
        name = f"{scope}:{kind}-{number // len(SCOPES):04}.{'csv' if scope == 'notes' else 'root'}"
        digest = hashlib.sha256(f"{name} {chance.random()}".encode()).hexdigest()
        made.append(Dataset(name=name, size=int(size * chance.lognormvariate(0, 0.4)), checksums={"sha256": digest}))
    return made


def _replicas(datasets: Sequence[Dataset], chance: Random) -> list[CatalogueReplica]:
    made = []
    for dataset in datasets:
        for endpoint in sorted(chance.sample(range(len(ENDPOINTS)), chance.choice((2, 3, 3)))):
            replica = CatalogueReplica(dataset=dataset.name, endpoint=ENDPOINTS[endpoint].name)
            made.append(replica if chance.random() > MOVED else replica.model_copy(update=AWAY))
    return made


def _bad(replicas: Sequence[CatalogueReplica], chance: Random) -> list[Bad]:
    """Return replicas to mark as bad, most at one server, as after a disk failure."""
    here = [each for each in replicas if each.endpoint == "oxford-web" and each.state == "AVAILABLE"]
    others = [each for each in replicas if each.endpoint != "oxford-web" and each.state == "AVAILABLE"]
    found = []
    for replica in [*here[:5], *chance.sample(others, 3)]:
        by = chance.choice(PEOPLE)
        marked = replica.model_copy(update={"state": "BAD", "reason": f"{by}: {chance.choice(REASONS)}"})
        found.append(Bad(marked, by, chance.uniform(0.1, 20) * DAY))
    return sorted(found, key=lambda each: -each.age)
