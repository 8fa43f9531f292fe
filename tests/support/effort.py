"""Effort of exploring tests: a short form for `make test`, and a long one for `make test-long`."""

import os

__all__ = ["LONG", "effort"]

LONG = os.environ.get("COGET_TESTS") == "long"


def effort(short: int, long: int) -> int:
    """Return how often to try; mark the test `long`, so that `make test-long` runs it."""
    return long if LONG else short
