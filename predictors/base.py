"""What every forecaster is: it learns one observation at a time, and forecasts. Nothing else."""

from abc import ABC, abstractmethod

from predictors.observation import Forecast, Observation, Query

__all__ = ["Forecaster"]


class Forecaster(ABC):
    """Learns from transfers that have ended, and says what to expect of the next one.

    It has no clock: the time of a forecast is in the query. Asked of a moment before what it learned last, it answers
    as of then if it can: the kernel always, others for the newest transfers, some not at all.
    """

    name: str

    @abstractmethod
    def learn(self, observation: Observation) -> None:
        """Take in one observation. They come in the order of their ends; one that comes late is taken as new."""

    @abstractmethod
    def forecast(self, query: Query) -> Forecast:
        """What is expected; its rate is None while nothing is known. Changes nothing."""
