"""Paths that share a bottleneck, found in the rates that they had at the same time. Pure.

Traffic of others on a shared link slows both paths in the same windows; transfers of ours take from each other. So the
changes of the rates from one window to the next are correlated, with either sign. The levels of the rates are not
looked at: those of independent paths are correlated, too, by the time of day.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise
from math import erfc, sqrt
from operator import mul
from statistics import fmean

from coalloc.guarantees.samples import PathSamples

__all__ = ["FALSE_ALARMS", "chance_of_coincidence", "shared_groups"]

FALSE_ALARMS = 0.01
"""Probability that independent paths are said to share a bottleneck, over all pairs of paths that are compared."""
ENOUGH = 60
"""Number of changes without which nothing is said."""
NEAR = 5
"""Windows by which two series must at least be shifted against each other to count as independent."""
KNOWN = 480
"""Number of the latest common windows that are looked at."""


def shared_groups(
    paths: Mapping[str, PathSamples],
    window: float,
    known: Sequence[Collection[str]] = (),
    false_alarms: float = FALSE_ALARMS,
) -> list[frozenset[str]]:
    """Divide paths into groups that share a bottleneck; a path that shares none is a group.

    :param window: seconds of the windows that are compared, at least a few round-trip times
    :param known: names of paths that are known to share one, such as the receiver's access link
    """
    groups = {name: frozenset([name]) for name in paths}
    pairs = list(combinations(paths, 2))
    rates = {name: samples.windows(window) for name, samples in paths.items()}
    found = [set(names) & paths.keys() for names in known]
    for a, b in pairs:
        common = sorted(rates[a].keys() & rates[b].keys())[-KNOWN:]
        full = [i for i in common if not (rates[a][i].limited or rates[b][i].limited)]
        changes = [(i, j) for i, j in pairwise(full) if j == i + 1]
        first, second = ([rates[each][j].rate - rates[each][i].rate for i, j in changes] for each in (a, b))
        if chance_of_coincidence(first, second) < false_alarms / len(pairs):
            found.append({a, b})
    for names in found:
        merged = frozenset().union(*(groups[name] for name in names))
        groups.update(dict.fromkeys(merged, merged))
    return list(dict.fromkeys(groups.values()))


def chance_of_coincidence(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the probability that changes of independent rates are correlated at least so much; 1 if too few are known.

    The correlation is that of the ranks, so that no single window decides. It is compared with those of the same series
    shifted against each other, since correlation within a series makes chance ones larger.

    :param first: changes of one path's rate
    :param second: changes of the other's in the same windows
    """
    if len(first) < ENOUGH:
        return 1.0
    a, b = _ranks(first), _ranks(second)
    twice = b + b
    shifted = [sum(map(mul, a, twice[shift : shift + len(a)])) for shift in range(NEAR, len(a) - NEAR)]
    typical = sqrt(fmean(each * each for each in shifted))
    return erfc(abs(sum(map(mul, a, b))) / typical / sqrt(2)) if typical else 1.0


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values around their mean, equal ones with the same rank."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    middle = (len(values) - 1) / 2
    return [fmean((places[value][0], places[value][-1])) - middle for value in values]
