"""A day that does not end while a test runs, for tests about days, weeks and the present day."""

import time

import pytest

__all__ = ["DAY", "TODAY", "at_noon"]

DAY = 86_400.0
TODAY = time.time() // DAY * DAY
"""Start of the day on which the tests were loaded, in UTC: tests run for hours."""
_real = time.time
_ahead = TODAY + DAY / 2 - time.time()


def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of this process, which continues from noon of that day; other processes are not affected."""
    monkeypatch.setattr(time, "time", lambda: _real() + _ahead)
