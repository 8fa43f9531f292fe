"""The gains and costs of depots, from the uses of routes by day. Pure.

A pair is a route over depots from a site to a server, beside the direct route. Times are those of a small file. One
reporter's day on which it used both routes gives one ratio: the median direct seconds, divided by the median seconds
over the depots. Days are compared, not uses, because uses of one day meet the same conditions.

Users report the times, and may report wrong ones. So each reporter's days are tested by themselves, and each reporter
has one vote about a pair, however many days it reported. Each has one vote about a depot, too, which is divided among
the reporter's pairs. The correction for the number of pairs weighs pairs by these votes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median, median_high, median_low
from typing import Literal, NamedTuple, TypeVar

from broker.models.depots import RouteDay
from broker.reports.significance import ALPHA, FEWEST, holm, median_interval, quantile, sign_test
from coalloc.depot.route import DepotRoute
from coalloc.model.routes import DIRECTLY

__all__ = [
    "SPAN",
    "DepotCost",
    "DepotPair",
    "DepotRecord",
    "DepotUsage",
    "GainSpread",
    "MatchedDay",
    "RouteGain",
    "compared",
    "cost_of",
    "depots_of",
    "matched",
    "records",
    "spread_of",
    "usage_of",
]

SHORTEST, LONGEST = 0.001, 60.0
"""Limits of the seconds of a small file, so that absurd reports do not matter more than others."""
LARGEST_GAIN = 100.0
"""Largest gain, and largest loss, of a pair."""
SPAN = 14
"""Fewest days from a reporter's first day to the last one, for a p-value: successive days resemble each other."""
Verdict = Literal["faster", "unclear", "slower"]
T = TypeVar("T")


class DepotPair(NamedTuple):
    """A route over depots from a site to a server; the site is empty if unknown."""

    site: str
    scheme: str
    host: str
    route: str

    @property
    def server(self) -> str:
        """The server's source name, without a port."""
        return f"{self.scheme}://{self.host}"


class MatchedDay(NamedTuple):
    """A day's uses of a route over depots, and the reporter's median direct seconds to the same server on this day."""

    use: RouteDay
    direct: float


class RouteGain(NamedTuple):
    """The comparison of a pair with the direct route.

    :param gain: direct seconds / seconds over the depots: median of each reporter's days, then of reporters
    :param interval: medians of the ends of the reporters' 95 % confidence intervals, the outer ones of an even number;
        None without such a median, because too many reporters have too few days
    :param days: number of days with both routes, of all reporters
    :param won: number of these days on which the depots were faster
    :param lost: number of these days on which they were slower
    :param agreeing: number of reporters with a median gain above 1, and of those with one below
    :param p: median of the reporters' p-values, the larger one of an even number, adjusted for all pairs; None unless
        more than half of the reporters have enough days
    """

    pair: DepotPair
    gain: float
    interval: tuple[float, float] | None
    days: int
    reporters: tuple[str, ...]
    won: int
    lost: int
    agreeing: tuple[int, int]
    p: float | None

    @property
    def verdict(self) -> Verdict:
        """The verdict: clearly faster or slower if most reporters agree, and chance is unlikely."""
        if self.p is None or self.p >= ALPHA:
            return "unclear"
        above, below = self.agreeing
        if 2 * above > len(self.reporters):
            return "faster"
        return "slower" if 2 * below > len(self.reporters) else "unclear"


class OwnGain(NamedTuple):
    """One reporter's comparison of a pair with the direct route; gains as logarithms.

    :param middle: median of the days
    :param ends: 95 % confidence interval; infinite without enough days
    :param p: p-value of the sign test; None without enough days
    """

    middle: float
    ends: tuple[float, float]
    days: int
    won: int
    lost: int
    p: float | None

    def chance(self, faster: bool) -> float:
        """Return the p-value of a difference in this direction; 1 if the days do not show one."""
        seen = self.won > self.lost if faster else self.lost > self.won
        return self.p if seen and self.p is not None else 1.0


class GainSpread(NamedTuple):
    """The gains of several pairs, in which each reporter has one vote.

    :param quartiles: lower quartile, median and upper quartile of the gains
    :param interval: 95 % confidence interval of the median; None for too few pairs
    :param shares: share of the votes with each verdict
    :param counts: number of pairs with each verdict
    """

    quartiles: tuple[float, float, float]
    interval: tuple[float, float] | None
    shares: Mapping[Verdict, float]
    counts: Mapping[Verdict, int]


class DepotCost(NamedTuple):
    """The uses that were faster and slower than the direct route of the same day, and the seconds saved and lost."""

    faster: int
    saved_seconds: float
    slower: int
    lost_seconds: float


class DepotUsage(NamedTuple):
    """The measured uses, with the numbers of their reporters, sites and servers, and their bytes."""

    uses: int
    reporters: int
    sites: int
    servers: int
    bytes: int


class DepotRecord(NamedTuple):
    """The uses of a depot, its pairs with their gains, and its cost; without pairs, `spread` is None."""

    usage: DepotUsage
    gains: Sequence[RouteGain]
    spread: GainSpread | None
    cost: DepotCost


def depots_of(route: str) -> tuple[str, ...]:
    """Return the depots of a route as HOST:PORT.

    >>> depots_of("depot-a.example:4000,depot-b.example:4000,*"), depots_of("none")
    (('depot-a.example:4000', 'depot-b.example:4000'), ())
    """
    return tuple(map(str, DepotRoute.parse(route).depots))


def matched(days: Iterable[RouteDay]) -> list[MatchedDay]:
    """Return the days on which a reporter used a route over depots and the direct route, with times of both."""
    uses = list(days)
    direct = {_place(each): _typical(each.seconds) for each in uses if each.route == DIRECTLY and each.seconds}
    over = [each for each in uses if each.route != DIRECTLY and each.seconds and _place(each) in direct]
    return [MatchedDay(each, direct[_place(each)]) for each in over]


def _place(each: RouteDay) -> tuple[str, str, str, str, int]:
    return each.reporter, each.site, each.scheme, each.host, each.day


def _bounded(seconds: float) -> float:
    return min(max(seconds, SHORTEST), LONGEST)


def _typical(seconds: Sequence[float]) -> float:
    """Return the median; of an even number, the geometric mean of both middle ones, which favours no side."""
    return math.exp(median(math.log(_bounded(each)) for each in seconds))


def compared(days: Iterable[MatchedDay]) -> list[RouteGain]:
    """Return the gain of each pair, in the order of the pairs."""
    ratios: defaultdict[DepotPair, defaultdict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for use, direct in days:
        pair = DepotPair(use.site, use.scheme, use.host, use.route)
        ratios[pair][use.reporter][use.day] = math.log(direct / _typical(use.seconds))
    found = [
        _gain(pair, {name: _own(by_day) for name, by_day in some.items()}) for pair, some in sorted(ratios.items())
    ]
    tested = [(each, each.p) for each in found if each.p is not None]
    weights = _votes([each for each, _ in tested])
    adjusted = dict(zip((each.pair for each, _ in tested), holm([p for _, p in tested], weights), strict=True))
    return [each._replace(p=adjusted.get(each.pair)) for each in found]


def _own(by_day: Mapping[int, float]) -> OwnGain:
    logs = list(by_day.values())
    won, lost = sum(each > 0 for each in logs), sum(each < 0 for each in logs)
    enough = won + lost >= FEWEST and max(by_day) - min(by_day) + 1 >= SPAN
    ends = median_interval(logs, [1.0] * len(logs)) if enough else None
    p = sign_test(won, lost) if enough else None
    return OwnGain(median(logs), ends or (-math.inf, math.inf), len(logs), won, lost, p)


def _gain(pair: DepotPair, by_reporter: Mapping[str, OwnGain]) -> RouteGain:
    owns = by_reporter.values()
    low, high = median_low(each.ends[0] for each in owns), median_high(each.ends[1] for each in owns)
    p = min(median_high(each.chance(faster) for each in owns) for faster in (True, False))
    enough = 2 * sum(each.p is not None for each in owns) > len(owns)
    return RouteGain(
        pair,
        _factor(median(each.middle for each in owns)),
        (_factor(low), _factor(high)) if math.isfinite(low) and math.isfinite(high) else None,
        sum(each.days for each in owns),
        tuple(sorted(by_reporter)),
        sum(each.won for each in owns),
        sum(each.lost for each in owns),
        (sum(each.middle > 0 for each in owns), sum(each.middle < 0 for each in owns)),
        p if enough else None,
    )


def _votes(gains: Sequence[RouteGain]) -> list[float]:
    """Return the weight of each pair: each reporter has one vote, which is divided among the reporter's pairs."""
    pairs = Counter(reporter for each in gains for reporter in each.reporters)
    return [math.fsum(1 / pairs[reporter] for reporter in each.reporters) for each in gains]


def _factor(log: float) -> float:
    return min(max(math.exp(log), 1 / LARGEST_GAIN), LARGEST_GAIN)


def spread_of(gains: Sequence[RouteGain]) -> GainSpread | None:
    """Return the distribution of gains; None if there are none."""
    if not gains:
        return None
    weights = _votes(gains)
    values, total = [each.gain for each in gains], math.fsum(weights)
    low, middle, high = (quantile(values, weights, share) for share in (0.25, 0.5, 0.75))
    verdicts: tuple[Verdict, ...] = ("faster", "unclear", "slower")
    with_verdict = {verdict: [i for i, each in enumerate(gains) if each.verdict == verdict] for verdict in verdicts}
    return GainSpread(
        (low, middle, high),
        median_interval(values, weights),
        {verdict: math.fsum(weights[i] for i in some) / total for verdict, some in with_verdict.items()},
        {verdict: len(some) for verdict, some in with_verdict.items()},
    )


def cost_of(days: Iterable[MatchedDay]) -> DepotCost:
    """Return the seconds saved and lost in uses of routes over depots."""
    differences = [_bounded(seconds) - direct for use, direct in days for seconds in use.seconds]
    saved, lost = [-each for each in differences if each < 0], [each for each in differences if each > 0]
    return DepotCost(len(saved), math.fsum(saved), len(lost), math.fsum(lost))


def usage_of(days: Sequence[RouteDay]) -> DepotUsage:
    """Return the numbers of uses, reporters, sites and servers, and the bytes."""
    return DepotUsage(
        sum(each.uses for each in days),
        len({each.reporter for each in days}),
        len({each.site for each in days if each.site}),
        len({(each.scheme, each.host) for each in days}),
        sum(each.bytes for each in days),
    )


def records(
    days: Iterable[RouteDay], both: Iterable[MatchedDay], gains: Iterable[RouteGain], known: Sequence[str], most: int
) -> dict[str, DepotRecord]:
    """Return the records of the known depots, and of the others with the most reporters, as HOST:PORT, in this order.

    A route over several depots counts for each of them.

    :param most: maximum number of other depots
    """
    uses = _by_depot((each.route, each) for each in days)
    usages = {depot: usage_of(uses.get(depot, ())) for depot in {*known, *uses}}
    others = sorted(
        usages.keys() - set(known), key=lambda depot: (-usages[depot].reporters, -usages[depot].uses, depot)
    )
    compared_days = _by_depot((each.use.route, each) for each in both)
    by_depot = _by_depot((each.pair.route, each) for each in gains)
    return {
        depot: DepotRecord(
            usages[depot],
            by_depot.get(depot, ()),
            spread_of(by_depot.get(depot, ())),
            cost_of(compared_days.get(depot, ())),
        )
        for depot in [*known, *others[:most]]
    }


def _by_depot(values: Iterable[tuple[str, T]]) -> dict[str, list[T]]:
    found: defaultdict[str, list[T]] = defaultdict(list)
    depots: dict[str, tuple[str, ...]] = {}
    for route, value in values:
        if route not in depots:
            depots[route] = depots_of(route)
        for depot in depots[route]:
            found[depot].append(value)
    return found
