"""One forecast from what several subjects have seen of a pair: each has one voice, however much it reports.

The middle voice is what others are told, so that no single one moves it beyond what another one has seen. Of an even
number the one that came last is left out: of two, the one that was there first counts. Pure.
"""

from collections.abc import Iterable, Sequence

from broker.storage.history import Kept
from predictors.hedge import Hedge
from predictors.observation import Forecast, Query

__all__ = ["MOST", "Voices", "middle_of"]

MOST = 7
"""Voices of one pair that are heard: those that reported last."""
BARE, EACH, GROWING = 180_000, 2_000, 700
"""Bytes of a forecaster, and of each of its first transfers: 160 KB were measured with 1, 680 with 300, 1490 with 2000.
"""
OWN = 5
"""Transfers of one's own from which on they count alone for oneself."""


class Voices:
    """A forecaster for each subject.

    :param subjects: in the order of their first reports
    :param compiled: whether forecasters are
    """

    def __init__(self, subjects: Iterable[str], compiled: bool) -> None:
        self._compiled = compiled
        self._of = {subject: Hedge(compiled) for subject in subjects}
        self._counts = dict.fromkeys(self._of, 0)

    def __len__(self) -> int:
        return len(self._of)

    @property
    def size(self) -> int:
        """Return about how many bytes of memory they take."""
        return sum(BARE + EACH * min(count, GROWING) for count in self._counts.values())

    def learn(self, kept: Kept) -> None:
        """Take in a transfer; of subjects beyond the most that are heard nothing."""
        if kept.subject not in self._of:
            if len(self._of) >= MOST:
                return
            self._of[kept.subject], self._counts[kept.subject] = Hedge(self._compiled), 0
        self._of[kept.subject].learn(kept.observation)
        self._counts[kept.subject] += 1

    def own(self, subject: str) -> str:
        """The subject, if it has a voice that counts alone for itself and there are others; else nothing."""
        return subject if len(self._of) > 1 and self._counts.get(subject, 0) >= OWN else ""

    def forecast(self, query: Query, own: str = "") -> Forecast | None:
        """Return the forecast; None where nothing is known.

        :param own: whose own transfers are to count alone, as `own` says
        """
        if own:
            return self._of[own].forecast(query)
        return middle_of([hedge.forecast(query) for hedge in self._of.values()])


def middle_of(said: Sequence[Forecast]) -> Forecast | None:
    """The middle of forecasts, in the order of seniority; None where none says anything."""
    known = [forecast for forecast in said if forecast.rates]
    heard = known if len(known) % 2 else known[:-1]
    if not heard:
        return None
    middle = sorted(heard, key=lambda forecast: forecast.rates.p50 if forecast.rates else 0.0)[len(heard) // 2]
    return (
        middle if len(known) == 1 else middle._replace(reason=f"{middle.reason}; the middle of {len(known)} reporters")
    )
