"""Observations with impossible values are refused."""

from dataclasses import replace

import pytest

from predictors.errors import BadObservationError
from predictors.observation import Observation

GOOD = Observation("ftp://a", start=10.0, end=20.0, bytes=1000, busy_seconds=5.0, setup_seconds=0.1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"end": 9.0},
        {"end": 10.0},
        {"concurrency": -1},
        {"bytes": -1},
        {"busy_seconds": -0.1},
        {"setup_seconds": -1.0},
        {"ranges": -1},
        {"start": float("nan")},
        {"end": float("inf")},
        {"busy_seconds": float("nan")},
        {"setup_seconds": float("nan")},
    ],
)
def test_refused(wrong):
    with pytest.raises(BadObservationError, match="ftp://a"):
        replace(GOOD, **wrong)


def test_no_time_is_no_rate():
    assert replace(GOOD, busy_seconds=0.0).rate is None
