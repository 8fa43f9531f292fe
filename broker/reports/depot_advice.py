"""Advice on registered depots: findings for which the measurements suffice, and sentences for them. Pure.

Users report measurements and may invent some. So findings of more users come first, each names the number of its users,
and a single reporter can cause only a few of them.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from broker.reports.depot_gains import SPAN, DepotPair, DepotRecord, RouteGain, depots_of
from broker.reports.significance import FEWEST
from broker.reports.words import written

__all__ = [
    "MOST_ALONE",
    "MOST_EACH",
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
    "users",
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
MOST_ALONE = 3
"""Maximum number of findings of one kind that rest on the same single reporter."""


class SlowDepot(NamedTuple):
    """A depot that is clearly slower than the direct route for most votes and most pairs.

    :param slower: number of clearly slower pairs
    """

    depot: str
    slower: int
    pairs: int
    users: int


class SlowPair(NamedTuple):
    """A pair for which the depots are clearly slower, and the best route over others that is clearly faster, if any."""

    slow: RouteGain
    better: RouteGain | None


class UnusedGain(NamedTuple):
    """A pair for which the depots are clearly faster, though transfers to the site hardly use depots.

    :param transfers: number of all transfers from the server to the site
    :param share: share of their bytes that came over depots
    """

    fast: RouteGain
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


def worth_using(gains: Iterable[RouteGain], registered: Collection[str]) -> list[RouteGain]:
    """Return pairs with a known site that gain clearly over registered depots: of most users first, then of most gain.

    Of a single reporter's pairs, some are left out if they are very many.

    :param registered: depots as HOST:PORT
    """
    clear = [each for each in gains if each.verdict == "faster" and each.gain >= MATTERS and each.pair.site]
    known = [each for each in clear if _over(each, registered)]
    return _limited(sorted(known, key=lambda each: (-len(each.reporters), -each.gain, each.pair)), MOST_EACH)


def _over(gain: RouteGain, depots: Collection[str]) -> bool:
    """Return whether all depots of a pair are among these."""
    return all(each in depots for each in depots_of(gain.pair.route))


def _limited(gains: Iterable[RouteGain], alone: int) -> list[RouteGain]:
    """Return the pairs of several reporters, and those of each single reporter for its first sites and servers.

    :param alone: maximum number of sites and servers of a single reporter
    """
    seen: defaultdict[tuple[str, ...], set[tuple[str, str]]] = defaultdict(set)
    kept = []
    for each in gains:
        places = seen[each.reporters]
        if len(each.reporters) > 1 or _place(each) in places or len(places) < alone:
            places.add(_place(each))
            kept.append(each)
    return kept


def findings(
    depots: Mapping[str, DepotRecord], gains: Sequence[RouteGain], moved: Mapping[tuple[str, str], Moved], alone: int
) -> list[Finding]:
    """Return the findings, the most important kind first.

    :param depots: records of registered depots by HOST:PORT
    :param moved: transfers by site and server (`DepotPair.server`), of the pairs in `worth_using`
    :param alone: maximum number of findings of one kind about pairs of the same single reporter
    """
    slow = [each for each in (_slow(depot, record) for depot, record in depots.items()) if each]
    slow.sort(key=lambda each: (-each.users, -each.slower, each.depot))
    useful = depots.keys() - {each.depot for each in slow}
    fast = worth_using(gains, useful)
    best = _by_place(fast)
    slower = [
        each
        for each in sorted(gains, key=lambda each: (-len(each.reporters), each.gain, each.pair))
        if each.verdict == "slower" and each.gain <= 1 / MATTERS and _over(each, useful)
    ]
    pairs = [SlowPair(each, best.get(place)) for place, each in _by_place(_limited(slower, alone)).items()]
    replaced = {_place(each.slow) for each in pairs}
    unused = [each for each in fast if _place(each) not in replaced and _unused(each, moved)]
    kinds: tuple[Sequence[Finding | None], ...] = (
        slow,
        pairs,
        [_unused(each, moved) for each in _by_place(_limited(unused, alone)).values()],
        [_unmeasured(depot, record) for depot, record in depots.items()],
    )
    return [each for kind in kinds for each in [each for each in kind if each][:MOST_EACH]]


def _place(gain: RouteGain) -> tuple[str, str]:
    return gain.pair.site, gain.pair.server


def _by_place(gains: Iterable[RouteGain]) -> dict[tuple[str, str], RouteGain]:
    """Return the first pair of each site and server."""
    found: dict[tuple[str, str], RouteGain] = {}
    for each in gains:
        found.setdefault(_place(each), each)
    return found


def _slow(depot: str, record: DepotRecord) -> SlowDepot | None:
    if record.spread is None:
        return None
    slower, pairs = record.spread.counts["slower"], len(record.gains)
    if slower < FEWEST_PAIRS or 2 * slower <= pairs or record.spread.shares["slower"] <= 0.5:
        return None
    reporters = {name for each in record.gains if each.verdict == "slower" for name in each.reporters}
    return SlowDepot(depot, slower, pairs, len(reporters))


def _unused(gain: RouteGain, moved: Mapping[tuple[str, str], Moved]) -> UnusedGain | None:
    known = moved.get(_place(gain))
    if known is None or known.transfers < FEWEST_TRANSFERS or known.over_depots >= UNUSED * known.bytes:
        return None
    return UnusedGain(gain, known.transfers, known.over_depots / known.bytes)


def _unmeasured(depot: str, record: DepotRecord) -> UnmeasuredDepot | None:
    days = max((each.days for each in record.gains), default=0)
    measured = any(each.p is not None for each in record.gains)
    return None if measured else UnmeasuredDepot(depot, record.usage.uses, days)


def advice(finding: Finding, names: Mapping[str, str], admin: bool) -> Advice:
    """Return the sentences for a finding.

    :param names: names of registered depots by HOST:PORT
    :param admin: whether the reader may remove depots
    """
    match finding:
        case SlowDepot(depot, slower, pairs, number):
            remove = ", or remove it from the broker" if admin else ""
            return Advice(
                f"Leave {names.get(depot, depot)} out of --via{remove}.",
                f"It is clearly slower than the direct route for {slower} of {pairs} pairs, {_measured(number)}.",
            )
        case SlowPair(slow, better):
            return _instead(slow, better, names)
        case UnusedGain(fast, transfers, share):
            return Advice(
                f"Add {shown_route(fast.pair.route, names)} to config.toml{_at(fast.pair)}, for {fast.pair.server}.",
                f"It is {fast.gain:.2g} times as fast there, {_measured(len(fast.reporters))}, but "
                f"{written(share, 'share')} of the bytes of {transfers:,} transfers came over depots.",
            )
        case UnmeasuredDepot(depot, uses, days):
            return Advice(
                f"Measure {names.get(depot, depot)} beside the direct route: run coget probe --via auto daily.",
                f"It has {uses:,} measured uses, and {days} days with both routes for one pair. More than half of a "
                f"pair's users need {FEWEST}, in {SPAN} days or more.",
            )


def _instead(slow: RouteGain, better: RouteGain | None, names: Mapping[str, str]) -> Advice:
    """Return the sentences for a slow pair: what to use instead, and why."""
    route, server, at = shown_route(slow.pair.route, names), slow.pair.server, _at(slow.pair)
    why = f"Over {route}, it takes {1 / slow.gain:.2g} times as long as directly, {_measured(len(slow.reporters))}."
    if better is None:
        return Advice(f"Use --via {slow.pair.host}=none{at}, or another depot.", why)
    other = shown_route(better.pair.route, names)
    return Advice(
        f"Use {other} instead of {route}{at}, for {server}.",
        f"{why} Over {other}, it is {better.gain:.2g} times as fast, {_measured(len(better.reporters))}.",
    )


def _measured(number: int) -> str:
    return f"as measured by {users(number)}"


def users(number: int) -> str:
    """Return a number of users in words.

    >>> users(1), users(2)
    ('1 user', '2 users')
    """
    return f"{number:,} user{'' if number == 1 else 's'}"


def _at(pair: DepotPair) -> str:
    return f" at {pair.site}" if pair.site else ""


def shown_route(route: str, names: Mapping[str, str]) -> str:
    """Return a route with the names of registered depots.

    >>> shown_route("192.0.2.1:4000,b.example:4000,*", {"192.0.2.1:4000": "depot-a"})
    'depot-a,b.example:4000,*'
    """
    return ",".join(names.get(each, each) for each in route.split(","))
