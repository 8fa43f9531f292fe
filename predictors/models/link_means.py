"""Means over links with one vote each, and the errors of forecasts for links that were left out.

Both are for links without transfers. A mean over transfers would be that of the busiest link. The errors that a
forecast makes on known links are no guide either: they are small, because these links were learned. So each transfer is
also forecast from all others than those of its link, its source or its sink, and these errors give the interval.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from math import inf, log

from predictors.experience import Experience
from predictors.observation import New

__all__ = ["LeftOutErrors", "LinkMeans", "NamedLink", "SizedExperience", "discounted", "middle"]

NamedLink = tuple[str, str]
"""A source and a sink."""

MEMORY = 30.0
"""Number of later transfers of a link that reduce the weight of a value to 1/e."""
MOST_REPORTERS = 15
"""Maximum number of reporters kept per group."""
MOST_LINKS = 50
"""Maximum number of links kept per reporter: those that were used last."""
MOST_GROUPS, EACH = 100, 40
"""Maximum number of links or hosts whose errors are kept, and of errors kept for each."""
ALL = ("", "")
"""Key of the sum over all links."""
NONE = 1e-6
"""Sum of votes below which there is none, but errors of rounding; a link has half a vote at least."""
UNKNOWN = log(10.0)
"""Log of the factor by which rates may differ from a forecast if no errors are known."""


def discounted(known: tuple[float, float], value: float) -> tuple[float, float]:
    """Return weight and mean after one more value.

    >>> discounted((0.0, 0.0), 5.0)
    (1.0, 5.0)
    """
    weight = known[0] * (1 - 1 / MEMORY) + 1.0
    return weight, known[1] + (value - known[1]) / weight


def middle(known: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the weight and mean of the median reporter; the last one is left out if their number is even.

    >>> middle([(1.0, 5.0), (9.0, 1.0), (1.0, 3.0), (1.0, 0.0)])
    (1.0, 3.0)
    """
    odd = known if len(known) % 2 else known[:-1]
    return sorted(odd, key=lambda each: each[1])[len(odd) // 2]


class SizedExperience(Experience):
    """The data of a group of transfers that are kept beside rates, with the range of their sizes (logs of bytes)."""

    def __init__(self) -> None:
        super().__init__()
        self._smallest, self._largest, self._newest_size = inf, -inf, 0.0

    def see(self, size: float, end: float) -> None:
        """Count one more learned rate."""
        self._smallest, self._largest, self._newest_size = min(self._smallest, size), max(self._largest, size), size
        self.rate(end)

    def size(self, nbytes: int | None) -> float:
        """Return the log of a size, or of the nearest one that was seen; that of the newest transfer for None."""
        return min(max(log(nbytes), self._smallest), self._largest) if nbytes else self._newest_size


class ReporterMeans:
    """The means of the links of a group, as one reporter knows them, and their sums: by source, by sink, and of all.

    With the sums, the mean without some links takes as long as the mean of all.
    """

    def __init__(self) -> None:
        self._links: OrderedDict[NamedLink, tuple[float, float]] = OrderedDict()
        self._sums: dict[tuple[str, str], tuple[float, float]] = {}

    def learn(self, link: NamedLink, value: float) -> None:
        """Learn the value of a transfer; drop the link that was used least recently if there are too many."""
        known = self._links.get(link)
        if known:
            self._add(link, known, -1.0)
        self._links[link] = discounted(known or (0.0, 0.0), value)
        self._links.move_to_end(link)
        self._add(link, self._links[link], 1.0)
        if len(self._links) > MOST_LINKS:
            self._add(*self._links.popitem(last=False), -1.0)

    def _add(self, link: NamedLink, known: tuple[float, float], sign: float) -> None:
        votes, total = _vote(known)
        for key in (ALL, ("source", link[0]), ("sink", link[1])):
            before = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = (before[0] + sign * votes, before[1] + sign * total)
            if self._sums[key][0] < NONE:
                del self._sums[key]

    def mean(self, without: New, link: NamedLink) -> tuple[float, float] | None:
        """Return the votes and the mean of all links, without this one, or those of its source, its sink or both."""
        less: list[tuple[float, float]] = []
        if without in ("source", "source and sink"):
            less.append(self._sums.get(("source", link[0]), (0.0, 0.0)))
        if without in ("sink", "source and sink"):
            less.append(self._sums.get(("sink", link[1]), (0.0, 0.0)))
        if without in ("link", "source and sink"):
            votes, total = _vote(self._links.get(link, (0.0, 0.0)))
            less.append((votes, total) if without == "link" else (-votes, -total))
        votes, total = self._sums.get(ALL, (0.0, 0.0))
        votes, total = votes - sum(each[0] for each in less), total - sum(each[1] for each in less)
        return (votes, total / votes) if votes > NONE else None


def _vote(known: tuple[float, float]) -> tuple[float, float]:
    """Return the vote of a link, less than one, and its product with the mean."""
    weight, mean = known
    vote = weight / (weight + 1.0)
    return vote, vote * mean


class LinkMeans(SizedExperience):
    """The mean of a group of links; with several reporters, the median of their means."""

    def __init__(self) -> None:
        super().__init__()
        self._reporters: dict[str, ReporterMeans] = {}

    def learn(self, link: NamedLink, value: float, reporter: str) -> None:
        """Learn the value of a transfer."""
        if reporter not in self._reporters:
            if len(self._reporters) >= MOST_REPORTERS:
                del self._reporters[next(iter(self._reporters))]
            self._reporters[reporter] = ReporterMeans()
        self._reporters[reporter].learn(link, value)

    def mean(self, without: New, link: NamedLink) -> tuple[float, float] | None:
        """Return the votes and the mean of all links, as `ReporterMeans.mean`; None without links."""
        found = [mean for each in self._reporters.values() if (mean := each.mean(without, link))]
        return middle(found) if found else None


class LeftOutErrors:
    """Logs of actual / forecast for links or hosts that were left out, the same number for each of them."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str | NamedLink, deque[float]] = OrderedDict()
        self._bounds: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._groups)

    def learn(self, group: str | NamedLink, error: float) -> None:
        """Learn an error in the forecast for a link or host."""
        self._groups.setdefault(group, deque(maxlen=EACH)).append(error)
        self._groups.move_to_end(group)
        if len(self._groups) > MOST_GROUPS:
            self._groups.popitem(last=False)
        self._bounds = None

    def bounds(self) -> tuple[float, float]:
        """Return the logs of the factors from the forecast to its p10, at most 0, and to its p90, at least 0.

        With few links or hosts, the next one probably lies outside of what these have shown. So the bounds are as much
        wider as those of Student's distribution would be, about 1 / (number - 1).
        """
        if self._bounds is None:
            self._bounds = self._computed() if len(self) > 1 else (-UNKNOWN, UNKNOWN)
        return self._bounds

    def _computed(self) -> tuple[float, float]:
        weighed = sorted((error, 1 / len(errors)) for errors in self._groups.values() for error in errors)
        low, mid, high = (_quantile(weighed, share * len(self)) for share in (0.1, 0.5, 0.9))
        wider = 1 + 1 / (len(self) - 1)
        return min(0.0, mid + wider * (low - mid)), max(0.0, mid + wider * (high - mid))


def _quantile(weighed: Sequence[tuple[float, float]], weight: float) -> float:
    total = 0.0
    for value, each in weighed:
        total += each
        if total >= weight:
            return value
    return weighed[-1][0]
