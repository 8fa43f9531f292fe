"""Forecasts beside what came of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from predictors.observation import Rates
from predictors.tally import Tally

__all__ = ["IN_CHARGE", "REPLAYED", "WEEK", "Key", "Mean", "Score", "tallied"]

WEEK = 7 * 86_400.0
IN_CHARGE = "in charge"
"""Among forecasters: whoever was in charge."""
REPLAYED = "hedge"
"""The forecaster that the broker uses: in charge of what nobody asked about."""


class Score(NamedTuple):
    """A transfer that went well, and what was to be expected of it when it began.

    :param forecaster: who was in charge, `leader`: whose word weighed most with it
    :param given: somebody was told so before; else it was replayed from what was known
    :param panel: what others would have said, by their names, if all of them had something to say
    """

    observation_id: int
    pair_id: int
    size_class: int
    subject: str
    started: float
    ended: float
    bytes: int
    rate: float
    setup_seconds: float | None
    forecaster: str
    leader: str
    given: bool
    rates: Rates
    panel: Mapping[str, Rates]


class Key(NamedTuple):
    """What sums are kept of; pair 0 is all of them together."""

    week: int
    pair_id: int
    size_class: int
    forecaster: str


class Mean(NamedTuple):
    """How far one was off in a week of a pair: the mean of |log(p50 / actual)| over so many transfers."""

    week: int
    pair_id: int
    forecaster: str
    transfers: int
    log_error: float


def tallied(scores: Iterable[Score]) -> dict[Key, Tally]:
    """The sums that these make up."""
    found: defaultdict[Key, list[Tally]] = defaultdict(list)
    for score in scores:
        for forecaster, rates in ((IN_CHARGE, score.rates), *score.panel.items()):
            tally = Tally.of(rates, score.rate)
            for pair_id in (0, score.pair_id):
                found[Key(int(score.ended // WEEK), pair_id, score.size_class, forecaster)].append(tally)
    return {key: Tally.total(tallies) for key, tallies in found.items()}
