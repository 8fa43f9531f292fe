"""One forecast from the observations of several subjects on a link, with equal weight for each subject.

Each subject has a forecaster; the result is the median of their forecasts, so that no single subject can
move it beyond another subject's forecast. If their number is even, the subject that reported last is left out.
"""

from collections.abc import Iterable, Sequence

from broker.storage.history import StoredObservation
from predictors.hedge import Hedge
from predictors.observation import Forecast, Query

__all__ = ["MOST", "SubjectForecasters", "middle_of"]

MOST = 7
"""Most subjects with a forecaster for one link: those that reported last."""
BARE, EACH, GROWING = 180_000, 2_000, 700
"""Memory of a forecaster in bytes: the base, the increase with each of the first transfers, and the number of these.

Measured: 160 KB with 1 transfer, 680 KB with 300, 1490 KB with 2000.
"""
OWN = 5
"""Number of a subject's transfers from which its forecasts use only these transfers."""


class SubjectForecasters:
    """A forecaster for each subject that has reported transfers over a link.

    :param subjects: subjects in the order of their first reports
    :param compiled: whether to compile forecasters
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
        """Learn a transfer; ignore it if its subject has no forecaster, and `MOST` subjects have one."""
        if stored.subject not in self._of:
            if len(self._of) >= MOST:
                return
            self._of[stored.subject], self._counts[stored.subject] = Hedge(self._compiled), 0
        self._of[stored.subject].learn(stored.observation)
        self._counts[stored.subject] += 1

    def own(self, subject: str) -> str:
        """Return the subject if its forecasts use only its own transfers; otherwise an empty string."""
        return subject if len(self._of) > 1 and self._counts.get(subject, 0) >= OWN else ""

    def forecast(self, query: Query, own: str = "") -> Forecast | None:
        """Return the forecast; None if nothing is known.

        :param own: subject whose transfers alone are used, from the method `own`; empty: use those of all
        """
        if own:
            return self._of[own].forecast(query)
        return middle_of([hedge.forecast(query) for hedge in self._of.values()])


def middle_of(forecasts: Sequence[Forecast]) -> Forecast | None:
    """Return the median of several forecasts; None if none of them has rates.

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
