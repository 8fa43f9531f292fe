"""Measurements of routes to servers, and the expected times based on them. Pure.

The expected time is that of a small file: until a session is ready, and then until 1 MiB has come. Round trips and
losses count most in it, as in them routes over depots differ.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from coalloc.model.routes import RouteUse

__all__ = ["LEAST", "LONG_SECONDS", "RECENT", "SMALL_FILE", "VALID_SECONDS", "MeasuredRoute", "expected_times"]

SMALL_FILE = 1024 * 1024
"""Bytes of the file whose time is expected."""
LEAST = SMALL_FILE // 2
"""Minimum number of first bytes whose time shows the rate; smaller files are over before it has risen."""
LONG_SECONDS = 2.0
"""Time in which fewer bytes show that a route is slow."""
RECENT = 5
"""Number of newest measurements of a route whose median is expected."""
VALID_SECONDS = 7 * 86400.0
"""Age in seconds at which a measurement does not count any more."""


class MeasuredRoute(NamedTuple):
    """A measurement of a route to a server.

    :param scheme: scheme of the server's URLs
    :param host: its host, in lower case
    :param ended: time in seconds since the epoch
    """

    scheme: str
    host: str
    ended: float
    use: RouteUse

    @property
    def small_seconds(self) -> float:
        """The seconds of a file of SMALL_FILE bytes, from at least a few first bytes."""
        return self.use.opening_seconds + self.use.beginning_seconds * SMALL_FILE / self.use.beginning


def expected_times(measured: Iterable[MeasuredRoute]) -> dict[str, dict[str, float]]:
    """Return the expected seconds of a small file by host and route, for the scheme that was measured last.

    :param measured: measurements in the order of their ends; the newest of each route count
    """
    schemes: dict[str, str] = {}
    seconds: dict[tuple[str, str], dict[str, list[float]]] = {}
    for each in measured:
        schemes[each.host] = each.scheme
        seconds.setdefault((each.scheme, each.host), {}).setdefault(each.use.route, []).append(each.small_seconds)
    return {
        host: {route: _median(known[-RECENT:]) for route, known in seconds[scheme, host].items()}
        for host, scheme in schemes.items()
    }


def _median(values: Sequence[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]
