"""Choices of the next depot on the way to a server, from forecasts of the depots' legs. Pure.

The expected time of a file of 1 MiB over a chain of legs is the set-up of all legs, plus the transfer over the slowest
one, as depots relay bytes while they arrive. The set-up of a leg is its time to connect, and a round trip for request
and first bytes. The transfer is that of a simple model of TCP: the first round trip brings ten segments (RFC 6928),
each further one twice as many (slow start, RFC 5681), up to the rate limit by losses of Mathis and others,

    rate <= MSS / RTT * sqrt(3/2) / sqrt(p)        p: share of lost packets

or up to the measured delivery rate, if that is lower. From there on the rest comes at this rate.

Sources: M. Mathis, J. Semke, J. Mahdavi, T. Ott, "The macroscopic behavior of the TCP congestion avoidance algorithm",
ACM CCR 27(3), 1997, equation 3; N. Cardwell, S. Savage, T. Anderson, "Modeling TCP latency", INFOCOM 2000, which adds
both phases up in the same way, with more detail.
"""

from collections.abc import Mapping, Sequence
from math import inf, isfinite, sqrt
from statistics import median_low
from typing import NamedTuple

from broker.models.depots import ReportedLeg
from coalloc.history.route_values import RECENT, SMALL_FILE

__all__ = ["CLEARLY", "LEAST_GAIN", "MOST_DEPOTS", "DepotPath", "LegForecast", "forecast", "path_from"]

SEGMENT = 1460
"""Bytes in a packet (MSS)."""
FIRST_WINDOW = 10 * SEGMENT
LEAST_ROUND_TRIP = 1e-6
CLEARLY, LEAST_GAIN = 0.9, 0.01
"""Maximum expected time over depots, as a share of the direct one, and minimum difference in seconds. For less, a depot
is not worth its use, and times on a local network differ by chance.
"""
MOST_DEPOTS = 3
"""Maximum number of depots on a path, the first one included."""


class LegForecast(NamedTuple):
    """The forecast of a leg: from a depot to the next hop.

    :param set_up: seconds until the first bytes of an answer come; infinite if connections mostly fail
    :param rest: seconds from then until 1 MiB has come
    """

    set_up: float
    rest: float

    @classmethod
    def of(cls, connect_seconds: float, round_trip: float, loss: float = 0.0, rate: float = inf) -> "LegForecast":
        """Return the forecast of a leg with these values.

        :param loss: share of the packets that are lost
        :param rate: upper bound of the rate, in bytes per second

        >>> round(LegForecast.of(0.1, 0.1).rest, 3), round(LegForecast.of(0.1, 0.1, loss=0.01).rest, 3)
        (0.514, 5.782)
        """
        seconds = max(round_trip, LEAST_ROUND_TRIP)
        limit = min(rate, SEGMENT / seconds * sqrt(1.5 / loss) if loss else inf)
        return cls(connect_seconds + seconds, _rest(seconds, limit))


UNUSABLE = LegForecast(inf, inf)


class DepotPath(NamedTuple):
    """A path to a server.

    :param depots: depots in the order of the path, the first one included
    :param set_up: seconds of all legs together
    :param rest: seconds of the slowest leg
    """

    depots: tuple[str, ...]
    set_up: float
    rest: float

    @property
    def seconds(self) -> float:
        """The expected time of a file of 1 MiB."""
        return self.set_up + self.rest

    def after(self, depot: str, leg: LegForecast) -> "DepotPath":
        """Return the path that begins with another depot and its leg to the first one of this path."""
        return DepotPath((depot, *self.depots), leg.set_up + self.set_up, max(leg.rest, self.rest))


def forecast(reports: Sequence[ReportedLeg], back: Sequence[ReportedLeg] = ()) -> LegForecast | None:
    """Return the forecast of a leg: the medians of its newest reports; None if no time is known.

    A depot knows the losses of the bytes that it sends. Most bytes are those of downloads, and come from the next hop.
    So its own reports about the way back count for loss and rate, if it is a depot.

    :param reports: reports of the leg, the newest first
    :param back: those of the next hop about its connections to this depot; empty if it is a server
    """
    newest, others = reports[:RECENT], back[:RECENT]
    if sum(each.failures for each in newest) > sum(each.sessions for each in newest):
        return UNUSABLE
    connect = _median([each.connect_seconds for each in newest])
    round_trip = _median([each.round_trip for each in newest])
    times = [each for each in (connect, round_trip) if each is not None]
    if not times:
        return None
    loss = _median([each.loss for each in others], [each.loss for each in newest])
    rate = _median([each.rate for each in others], [each.rate for each in newest])
    return LegForecast.of(times[0], times[-1], loss or 0.0, rate or inf)


def path_from(
    depot: str, direct: Mapping[str, LegForecast], between: Mapping[tuple[str, str], LegForecast]
) -> DepotPath | None:
    """Return the path from a depot to a server; None if the leg from the depot to the server is unknown.

    Each depot forwards by its own table. So the path over a next depot is the one that this depot takes itself. Paths
    are settled in the order of their times, as by Dijkstra's algorithm; a path consists of settled ones, and so has no
    loop.

    :param direct: leg of each depot to the server
    :param between: leg of each depot to each other one
    """
    best = {each: DepotPath((each,), *leg) for each, leg in direct.items()}
    settled: set[str] = set()
    while depot in best and depot not in settled:
        nearest = min(best.keys() - settled, key=lambda each: (best[each].seconds, each))
        settled.add(nearest)
        if len(best[nearest].depots) == MOST_DEPOTS or not isfinite(best[nearest].seconds):
            continue
        for each in best.keys() - settled:
            leg = between.get((each, nearest), UNUSABLE)
            longer = best[nearest].after(each, leg)
            alone = sum(direct[each])
            enough = min(best[each].seconds, CLEARLY * alone, alone - LEAST_GAIN)
            if isfinite(longer.seconds) and longer.seconds <= enough:
                best[each] = longer
    return best.get(depot)


def _rest(round_trip: float, limit: float) -> float:
    """Return the seconds after the first window in which the rest of 1 MiB comes."""
    window, missing, seconds = 2 * FIRST_WINDOW, SMALL_FILE - FIRST_WINDOW, 0.0
    while window < min(missing, limit * round_trip):
        missing -= window
        seconds += round_trip
        window *= 2
    return seconds + missing / min(window / round_trip, limit)


def _median(*groups: Sequence[float | None]) -> float | None:
    """Return the median of the known values, of the first group that has some."""
    known = ([each for each in group if each is not None] for group in groups)
    return next((median_low(values) for values in known if values), None)
