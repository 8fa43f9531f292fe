"""The ideal: the earliest time at which the bytes can be at the client, computed from the links' schedule. Pure.

No client can be faster: each source sends from the first moment that the protocol allows, as fast as the links on its
path carry the bytes, without a slow start, a pause or a byte sent twice. `tests.benchmarks.plan` provides the links and
their changes.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

__all__ = ["HEADERS", "ROUND_TRIPS", "Change", "Link", "Schedule", "payload_share"]

ROUND_TRIPS = {"ftp": 4, "http": 2, "https": 3}
"""Round trips before the first byte of data that a protocol cannot avoid, by URL scheme.

GridFTP: control connection; login, with all further commands sent along; data connection (its port is in the reply);
first byte. HTTP: connection; first byte. HTTPS adds TLS 1.3. The ideal has no slow start of TCP.
"""

HEADERS = 52
"""Bytes of a full TCP segment that are not payload: IPv4 20, TCP 20, timestamps 12."""


@dataclass(frozen=True, slots=True)
class Link:
    """A link towards the client.

    :param rate: payload bytes per second
    :param onward: name of the next link towards the client; None if this one ends there
    """

    rate: float
    onward: str | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a link: from `at` seconds on, it carries `rate` payload bytes per second."""

    at: float
    link: str
    rate: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """The rates of the links over time.

    :param links: links by name; they form a tree whose root is the client
    :param ready: for each link that begins at a source, the second at which its first byte can be at the client
    :param changes: changes in order of time
    """

    links: Mapping[str, Link]
    ready: Mapping[str, float]
    changes: tuple[Change, ...] = ()

    def after(self, change: Change) -> "Schedule":
        """Return the schedule with another change at its end."""
        return replace(self, changes=(*self.changes, change))

    def seconds(self, size: float) -> float:
        """Return the earliest time, in seconds, by which `size` bytes can have arrived; infinity if never."""
        arrived = 0.0
        for begin, end, rate in self._stretches():
            if rate and arrived + rate * (end - begin) >= size:
                return begin + (size - arrived) / rate
            arrived += rate * (end - begin) if rate else 0.0
        return math.inf

    def _stretches(self) -> Iterator[tuple[float, float, float]]:
        """Yield the begin and end of each period with constant rates, and the total rate at the client."""
        moments = sorted({0.0, *self.ready.values(), *(change.at for change in self.changes)})
        for begin, end in zip(moments, [*moments[1:], math.inf], strict=True):
            yield begin, end, self._rate(begin)

    def _rate(self, now: float) -> float:
        """Return the total rate at the client. Each link passes on its input, up to its own rate."""
        rates = {name: link.rate for name, link in self.links.items()}
        rates |= {change.link: change.rate for change in self.changes if change.at <= now}
        incoming = dict.fromkeys(self.links, 0.0)
        for name, ready in self.ready.items():
            incoming[name] = math.inf if ready <= now else 0.0
        total = 0.0
        for name in sorted(self.links, key=self._distance, reverse=True):
            passed, onward = min(incoming[name], rates[name]), self.links[name].onward
            if onward is None:
                total += passed
            else:
                incoming[onward] += passed
        return total

    def _distance(self, name: str) -> int:
        onward = self.links[name].onward
        return 0 if onward is None else 1 + self._distance(onward)


def payload_share(mtu: int = 1500) -> float:
    """Return the payload's share of a link's rate, with full segments."""
    return (mtu - HEADERS) / mtu
