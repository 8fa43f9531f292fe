"""Who forecasts better where, and whether that may be chance; pure.

One week of one pair is one observation: errors of transfers that follow each other are alike, and to count each would
make chance look like merit. In how many of these one forecaster was nearer than the other decides (the exact sign test:
Conover, Practical Nonparametric Statistics, 3.4), so no error weighs more for being large. Where many are compared some
are ahead by chance: so each is held against all that were tried (Holm, "A simple sequentially rejective multiple test
procedure", 1979).
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from broker.models.scores import REPLAYED, Record

__all__ = ["ALPHA", "FEWEST", "Contest", "Duel", "contests", "duels", "holm", "sign_test"]

FEWEST = 6
"""Weeks of pairs below which nothing is said: six of six is the least that chance seldom does."""
ALPHA = 0.05
K = TypeVar("K", bound=Hashable)


class Duel(NamedTuple):
    """One forecaster against the broker's own.

    `log_error` is over all transfers; `won` and `lost` are weeks of pairs in which it was nearer, and further off;
    `p`: how likely chance alone does as much, all comparisons considered, None where there are too few to say.
    """

    forecaster: str
    transfers: int
    log_error: float
    won: int
    lost: int
    p: float | None


class Contest(NamedTuple, Generic[K]):
    """Who was nearest somewhere, against the broker's own, or, where that was, against the next."""

    where: K
    best: str
    log_error: float
    rival: str
    rival_error: float
    transfers: int
    won: int
    lost: int
    p: float | None


def sign_test(won: int, lost: int) -> float:
    """How likely chance makes as great a difference, whoever it is for; those that are equal are left out.

    >>> sign_test(6, 0), sign_test(5, 5)
    (0.03125, 1.0)
    """
    total, term, below = won + lost, 1, 0
    for i in range(min(won, lost) + 1):
        below += term
        term = term * (total - i) // (i + 1)
    return min(1.0, below / 2 ** (total - 1)) if total else 1.0


def holm(chances: Sequence[float]) -> list[float]:
    """The same, all of them considered: that any that is true is found to be false has at most the chance it says.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted, least = [0.0] * len(chances), 0.0
    for rank, i in enumerate(sorted(range(len(chances)), key=lambda each: chances[each])):
        least = max(least, min(1.0, (len(chances) - rank) * chances[i]))
        adjusted[i] = least
    return adjusted


def duels(records: Iterable[Record], by: Callable[[Record], K]) -> dict[K, list[Duel]]:
    """Each forecaster against the broker's own, in each place, the nearest first; its own among them, without wins.

    :param by: which place a record is of
    """
    places: defaultdict[K, defaultdict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        places[by(record)][record.forecaster].append(record)
    found = {
        place: sorted((_duel(name, some) for name, some in each.items()), key=lambda duel: duel.log_error)
        for place, each in places.items()
    }
    tried = [(place, i) for place, each in found.items() for i, duel in enumerate(each) if duel.p is not None]
    chances = [found[place][i].p or 0.0 for place, i in tried]
    for (place, i), chance in zip(tried, holm(chances), strict=True):
        found[place][i] = found[place][i]._replace(p=chance)
    return found


def _duel(name: str, records: Sequence[Record]) -> Duel:
    transfers, errors = sum(each.transfers for each in records), sum(each.absolute_log_errors for each in records)
    won, lost = sum(each.won for each in records), sum(each.lost for each in records)
    p = sign_test(won, lost) if name != REPLAYED and won + lost >= FEWEST else None
    return Duel(name, transfers, errors / transfers, won, lost, p)


def contests(found: Mapping[K, Sequence[Duel]]) -> list[Contest[K]]:
    """Who was nearest in each place, those with most transfers first; places where only one forecast are left out."""
    made = [_contest(where, each) for where, each in found.items() if len(each) > 1]
    return sorted(made, key=lambda each: -each.transfers)


def _contest(where: K, duels: Sequence[Duel]) -> Contest[K]:
    best, second = duels[0], duels[1]
    if best.forecaster == REPLAYED:
        won, lost, rival, p = second.lost, second.won, second, second.p
    else:
        rival = next((each for each in duels if each.forecaster == REPLAYED), second)
        won, lost, p = best.won, best.lost, best.p
    return Contest(
        where, best.forecaster, best.log_error, rival.forecaster, rival.log_error, best.transfers, won, lost, p
    )
