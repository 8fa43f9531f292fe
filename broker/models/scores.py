"""Scores: forecasts compared with the transfers that followed."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from predictors.observation import Rates
from predictors.tally import Tally

__all__ = ["IN_CHARGE", "REPLAYED", "WEEK", "ForecasterRecord", "Score", "ScoreKey", "recorded", "tallied"]

WEEK = 7 * 86_400.0
IN_CHARGE = "in charge"
"""Key for the sums over the forecasters in charge, whose forecasts were used."""
REPLAYED = "hedge"
"""The broker's own forecaster, whose replayed forecast counts if none was requested for a transfer."""


class Score(NamedTuple):
    """A successful transfer, and the forecast for it.

    :param forecaster: forecaster that made the forecast
    :param leader: forecaster with the largest weight in the forecast
    :param given: whether a caller got the forecast before the transfer; otherwise it was replayed from the history
    :param panel: forecasts of the other forecasters, by name, if all of them had one
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


class ScoreKey(NamedTuple):
    """The key of a sum of scores; `pair_id` 0 stands for all links together."""

    week: int
    pair_id: int
    size_class: int
    forecaster: str


class ForecasterRecord(NamedTuple):
    """The record of one forecaster on a link.

    :param absolute_log_errors: sum of |log(p50 / actual)|
    :param won: number of weeks in which it was more accurate than the broker's own forecaster
    :param lost: number of weeks in which it was less accurate
    """

    pair_id: int
    forecaster: str
    transfers: int
    absolute_log_errors: float
    won: int
    lost: int


def tallied(scores: Iterable[Score]) -> dict[ScoreKey, Tally]:
    """Return the sums of scores; sums of single links have no histogram of errors (`Tally.errors`)."""
    found: defaultdict[ScoreKey, list[Tally]] = defaultdict(list)
    for score in scores:
        for forecaster, rates in ((IN_CHARGE, score.rates), *score.panel.items()):
            key = ScoreKey(int(score.ended // WEEK), score.pair_id, score.size_class, forecaster)
            found[key].append(Tally.of(rates, score.rate))
    single = {key: Tally.total(tallies) for key, tallies in found.items()}
    together: defaultdict[ScoreKey, list[Tally]] = defaultdict(list)
    for key, total in single.items():
        together[key._replace(pair_id=0)].append(total)
    every = {key: Tally.total(tallies) for key, tallies in together.items()}
    return every | {key: replace(total, errors={}) for key, total in single.items()}


def recorded(tallies: Mapping[ScoreKey, Tally]) -> list[ForecasterRecord]:
    """Return the record of each forecaster on each link, computed from sums."""
    weeks: defaultdict[tuple[int, int], defaultdict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for key, tally in tallies.items():
        if key.pair_id and key.forecaster != IN_CHARGE:
            weeks[key.pair_id, key.week][key.forecaster].append(tally)
    found: defaultdict[tuple[int, str], list[ForecasterRecord]] = defaultdict(list)
    for (pair_id, _), forecasts in weeks.items():
        own = Tally.total(forecasts[REPLAYED]).log_error
        for forecaster, some in forecasts.items():
            total = Tally.total(some)
            won, lost = int(total.log_error < own), int(total.log_error > own)
            record = ForecasterRecord(pair_id, forecaster, total.transfers, total.absolute_log_errors, won, lost)
            found[pair_id, forecaster].append(record)
    return [
        ForecasterRecord(*where, *(sum(values) for values in zip(*(each[2:] for each in some), strict=True)))
        for where, some in found.items()
    ]
