"""Advice on depots: findings for which the measurements suffice, and sentences for them. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.reports.depot_gains import DepotPair, DepotRecord, RouteGain, depots_of
from broker.reports.significance import FEWEST
from broker.reports.words import written

__all__ = [
    "Advice",
    "Finding",
    "Moved",
    "SlowDepot",
    "SlowPair",
    "UnmeasuredDepot",
    "UnusedGain",
    "advice",
    "findings",
    "shown_route",
    "worth_using",
]

MATTERS = 1.1
"""Smallest gain, or loss, that is worth a change of the configuration."""
FEWEST_PAIRS = 3
"""Fewest clearly slower pairs for advice against a depot as a whole."""
FEWEST_TRANSFERS = 10
"""Fewest transfers for advice to use a depot."""
UNUSED = 0.1
"""Share of the bytes over depots below which they count as unused."""
MOST_EACH = 10
"""Maximum number of findings of one kind."""


class SlowDepot(NamedTuple):
    """A depot that is clearly slower than the direct route for most votes.

    :param slower: number of clearly slower pairs
    """

    depot: str
    slower: int
    pairs: int


class SlowPair(NamedTuple):
    """A pair for which the depots are clearly slower."""

    pair: DepotPair
    gain: float


class UnusedGain(NamedTuple):
    """A pair for which the depots are clearly faster, though transfers to the site hardly use depots.

    :param transfers: number of all transfers from the server to the site
    :param share: share of their bytes that came over depots
    """

    pair: DepotPair
    gain: float
    transfers: int
    share: float


class UnmeasuredDepot(NamedTuple):
    """A depot with too few measurements for a verdict.

    :param days: most days of one pair on which a reporter measured both routes
    """

    depot: str
    uses: int
    days: int


Finding = SlowDepot | SlowPair | UnusedGain | UnmeasuredDepot


class Moved(NamedTuple):
    """All transfers from a server to a site, and the bytes that came over depots."""

    transfers: int
    bytes: int
    over_depots: int


class Advice(NamedTuple):
    """A sentence that says what to do, and another one that says why."""

    action: str
    reason: str


def worth_using(gains: Iterable[RouteGain]) -> list[RouteGain]:
    """Return the pairs with a known site that gain clearly, the largest gain first."""
    clear = [each for each in gains if each.verdict == "faster" and each.gain >= MATTERS and each.pair.site]
    return sorted(clear, key=lambda each: (-each.gain, each.pair))


def findings(
    depots: Mapping[str, DepotRecord], gains: Sequence[RouteGain], moved: Mapping[tuple[str, str], Moved]
) -> list[Finding]:
    """Return the findings, the most important kind first.

    :param depots: records by HOST:PORT
    :param moved: transfers by site and server (`DepotPair.server`), of the pairs in `worth_using(gains)`
    """
    slow = [each for each in (_slow(depot, record) for depot, record in depots.items()) if each]
    named = {each.depot for each in slow}
    slow_pairs = [
        SlowPair(each.pair, each.gain)
        for each in sorted(gains, key=lambda each: (each.gain, each.pair))
        if each.verdict == "slower" and each.gain <= 1 / MATTERS and not named.intersection(depots_of(each.pair.route))
    ]
    unused = [each for each in (_unused(gain, moved) for gain in worth_using(gains)) if each]
    best = {(each.pair.site, each.pair.server): each for each in reversed(unused)}.values()  # one depot is enough
    unmeasured = [each for each in (_unmeasured(depot, record) for depot, record in depots.items()) if each]
    return [each for kind in (slow, slow_pairs, list(best)[::-1], unmeasured) for each in kind[:MOST_EACH]]


def _slow(depot: str, record: DepotRecord) -> SlowDepot | None:
    if record.spread is None:
        return None
    slower = record.spread.counts["slower"]
    if slower < FEWEST_PAIRS or record.spread.shares["slower"] <= 0.5:
        return None
    return SlowDepot(depot, slower, len(record.gains))


def _unused(gain: RouteGain, moved: Mapping[tuple[str, str], Moved]) -> UnusedGain | None:
    known = moved.get((gain.pair.site, gain.pair.server))
    if known is None or known.transfers < FEWEST_TRANSFERS or known.over_depots >= UNUSED * known.bytes:
        return None
    return UnusedGain(gain.pair, gain.gain, known.transfers, known.over_depots / known.bytes)


def _unmeasured(depot: str, record: DepotRecord) -> UnmeasuredDepot | None:
    days = max((each.days for each in record.gains), default=0)
    return UnmeasuredDepot(depot, record.usage.uses, days) if days < FEWEST else None


def advice(finding: Finding, names: Mapping[str, str], admin: bool) -> Advice:
    """Return the sentences for a finding.

    :param names: names of registered depots by HOST:PORT
    :param admin: whether the reader may remove depots
    """
    match finding:
        case SlowDepot(depot, slower, pairs):
            remove = ", or remove it from the broker" if admin and depot in names else ""
            return Advice(
                f"Leave {names.get(depot, depot)} out of --via{remove}.",
                f"It is clearly slower than the direct route for {slower} of {pairs} pairs.",
            )
        case SlowPair(pair, gain):
            return Advice(
                f"Use --via {pair.host}=none{_at(pair)}, or another depot.",
                f"Over {shown_route(pair.route, names)}, {pair.server} takes {1 / gain:.2g} times as long.",
            )
        case UnusedGain(pair, gain, transfers, share):
            return Advice(
                f"Add {shown_route(pair.route, names)} to config.toml{_at(pair)}, for {pair.server}.",
                f"It is {gain:.2g} times as fast there, but {written(share, 'share')} of the bytes of {transfers:,} "
                "transfers came over depots.",
            )
        case UnmeasuredDepot(depot, uses, days):
            return Advice(
                f"Measure {names.get(depot, depot)} beside the direct route: run coget probe --via auto daily.",
                f"It has {uses:,} measured uses, and {days} days with both routes for one pair; {FEWEST} are needed.",
            )


def _at(pair: DepotPair) -> str:
    return f" at {pair.site}" if pair.site else ""


def shown_route(route: str, names: Mapping[str, str]) -> str:
    """Return a route with the names of registered depots.

    >>> shown_route("192.0.2.1:4000,b.example:4000,*", {"192.0.2.1:4000": "depot-a"})
    'depot-a,b.example:4000,*'
    """
    return ",".join(names.get(each, each) for each in route.split(","))
