"""The interface of every forecaster: it learns one observation at a time, and forecasts."""

from abc import ABC, abstractmethod

from predictors.observation import Forecast, Observation, Query

__all__ = ["Forecaster"]


class Forecaster(ABC):
    """A model that learns from transfers that have ended, and forecasts the next one.

    It has no clock: each query contains the time of its forecast. If that time is before the last learned transfer, the
    kernel uses only transfers that had ended by then; some forecasters can do so for the newest transfers only, and
    others always use all transfers.
    """

    name: str

    @abstractmethod
    def learn(self, observation: Observation) -> None:
        """Learn one observation. Observations come in the order of their ends; a late one is learned nevertheless."""

    @abstractmethod
    def forecast(self, query: Query) -> Forecast:
        """Return the forecast for a query; its `rates` are None while nothing is known. Changes no state."""
