"""The errors of predictors: what is refused as an observation."""

__all__ = ["BadObservationError", "PredictorError"]


class PredictorError(Exception):
    """Anything that predictors refuse."""


class BadObservationError(PredictorError):
    """An observation that cannot have been made: not a number, negative, or ending before it began."""
