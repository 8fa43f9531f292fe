"""Forecasts beside what came of them."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from predictors.observation import Rates
from predictors.tally import Tally

__all__ = ["IN_CHARGE", "REPLAYED", "WEEK", "Key", "Record", "Score", "recorded", "tallied"]

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


class Record(NamedTuple):
    """How one forecaster did on a pair.

    `absolute_log_errors` is the sum of |log(p50 / actual)|; `won` and `lost` are weeks in which it was nearer than the
    broker's own, and further off.
    """

    pair_id: int
    forecaster: str
    transfers: int
    absolute_log_errors: float
    won: int
    lost: int


def tallied(scores: Iterable[Score]) -> dict[Key, Tally]:
    """The sums that these make up; single pairs have no steps of errors."""
    found: defaultdict[Key, list[Tally]] = defaultdict(list)
    for score in scores:
        for forecaster, rates in ((IN_CHARGE, score.rates), *score.panel.items()):
            key = Key(int(score.ended // WEEK), score.pair_id, score.size_class, forecaster)
            found[key].append(Tally.of(rates, score.rate))
    single = {key: Tally.total(tallies) for key, tallies in found.items()}
    together: defaultdict[Key, list[Tally]] = defaultdict(list)
    for key, total in single.items():
        together[key._replace(pair_id=0)].append(total)
    every = {key: Tally.total(tallies) for key, tallies in together.items()}
    return every | {key: replace(total, errors={}) for key, total in single.items()}


def recorded(tallies: Mapping[Key, Tally]) -> list[Record]:
    """How each forecaster did on each pair, by sums."""
    weeks: defaultdict[tuple[int, int], defaultdict[str, list[Tally]]] = defaultdict(lambda: defaultdict(list))
    for key, tally in tallies.items():
        if key.pair_id and key.forecaster != IN_CHARGE:
            weeks[key.pair_id, key.week][key.forecaster].append(tally)
    found: defaultdict[tuple[int, str], list[Record]] = defaultdict(list)
    for (pair_id, _), said in weeks.items():
        own = Tally.total(said[REPLAYED]).log_error
        for forecaster, some in said.items():
            total = Tally.total(some)
            won, lost = int(total.log_error < own), int(total.log_error > own)
            record = Record(pair_id, forecaster, total.transfers, total.absolute_log_errors, won, lost)
            found[pair_id, forecaster].append(record)
    return [
        Record(*where, *(sum(values) for values in zip(*(each[2:] for each in some), strict=True)))
        for where, some in found.items()
    ]
