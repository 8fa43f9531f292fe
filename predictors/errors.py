"""The errors of predictors: refused observations, missing libraries, missing forecasts."""

__all__ = ["BadObservationError", "MissingLibraryError", "NothingForecastError", "PredictorError"]


class PredictorError(Exception):
    """Base class of all errors of predictors."""


class BadObservationError(PredictorError):
    """An impossible observation: a number is not finite or negative, or the end is not after the start."""


class MissingLibraryError(PredictorError):
    """A missing library; the message says how to install it."""


class NothingForecastError(PredictorError):
    """A forecaster that made no forecast for any of the scored transfers."""
