"""One forecast from the observations of several subjects on a link: each has one voice, however much it reports.

The forecast is that of the middle voice, so that no single subject can move it beyond what another one has seen. With
an even number of voices, the newest one is left out: of two, the older one counts. Pure.
"""

from collections.abc import Iterable, Sequence

from broker.storage.history import StoredObservation
from predictors.hedge import Hedge
from predictors.observation import Forecast, Query

__all__ = ["MOST", "SubjectForecasters", "middle_of"]

MOST = 7
"""Most voices of one link: those of the subjects that reported last."""
BARE, EACH, GROWING = 180_000, 2_000, 700
"""Bytes of a forecaster, of each of its first transfers, and the number of these. Measured: 160 KB with 1 transfer, 680
KB with 300, 1490 KB with 2000.
"""
OWN = 5
"""Transfers of a subject from which on its forecasts use these alone."""


class SubjectForecasters:
    """A forecaster for each subject that has reported transfers over a link.

    :param subjects: subjects in the order of their first reports
    :param compiled: whether forecasters are compiled
    """

    def __init__(self, subjects: Iterable[str], compiled: bool) -> None:
        self._compiled = compiled
        self._of = {subject: Hedge(compiled) for subject in subjects}
        self._counts = dict.fromkeys(self._of, 0)

    def __len__(self) -> int:
        return len(self._of)

    @property
    def size(self) -> int:
        """The approximate memory of the forecasters, in bytes."""
        return sum(BARE + EACH * min(count, GROWING) for count in self._counts.values())

    def learn(self, stored: StoredObservation) -> None:
        """Take in a transfer; ignore it if its subject has no voice, and there are `MOST` already."""
        if stored.subject not in self._of:
            if len(self._of) >= MOST:
                return
            self._of[stored.subject], self._counts[stored.subject] = Hedge(self._compiled), 0
        self._of[stored.subject].learn(stored.observation)
        self._counts[stored.subject] += 1

    def own(self, subject: str) -> str:
        """Return the subject if its own transfers alone count for its forecasts; empty if not, or if it is alone."""
        return subject if len(self._of) > 1 and self._counts.get(subject, 0) >= OWN else ""

    def forecast(self, query: Query, own: str = "") -> Forecast | None:
        """Return the forecast; None where nothing is known.

        :param own: subject whose own transfers alone count, as returned by the method `own`; empty: none
        """
        if own:
            return self._of[own].forecast(query)
        return middle_of([hedge.forecast(query) for hedge in self._of.values()])


def middle_of(forecasts: Sequence[Forecast]) -> Forecast | None:
    """Return the middle one of several forecasts; None if none of them has rates.

    :param forecasts: forecasts in the order of the first reports of their subjects
    """
    known = [forecast for forecast in forecasts if forecast.rates]
    counted = known if len(known) % 2 else known[:-1]
    if not counted:
        return None
    middle = sorted(counted, key=lambda forecast: forecast.rates.p50 if forecast.rates else 0.0)[len(counted) // 2]
    return (
        middle if len(known) == 1 else middle._replace(reason=f"{middle.reason}; the median of {len(known)} reporters")
    )
