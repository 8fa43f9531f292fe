"""The errors of predictors: what is refused as an observation, and what is not installed."""

__all__ = ["BadObservationError", "MissingLibraryError", "NothingForecastError", "PredictorError"]


class PredictorError(Exception):
    """Anything that predictors refuse."""


class BadObservationError(PredictorError):
    """An observation that cannot have been made: not a number, negative, or ending when it began, or before."""


class MissingLibraryError(PredictorError):
    """A library that is not installed; the message says how to have it."""


class NothingForecastError(PredictorError):
    """A forecaster that said nothing of any transfer on which it was to be judged."""
