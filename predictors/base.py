"""The interface of every forecaster: it learns one observation at a time, and forecasts."""

from abc import ABC, abstractmethod

from predictors.observation import Forecast, Observation, Query

__all__ = ["Forecaster"]


class Forecaster(ABC):
    """A model that learns from transfers that have ended, and forecasts the next one.

    It has no clock: the time of a forecast is in the query. For a time before the last learned transfer, the kernel
    always answers with what was known then, others do so for the newest transfers only, and some never do.
    """

    name: str

    @abstractmethod
    def learn(self, observation: Observation) -> None:
        """Learn one observation. They come in the order of their ends; a late one is treated as new."""

    @abstractmethod
    def forecast(self, query: Query) -> Forecast:
        """Return the forecast for a query; its rate is None while nothing is known. Changes no state."""
