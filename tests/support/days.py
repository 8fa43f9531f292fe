"""A clock at noon for tests about days and weeks, so that no day ends while a test runs."""

import time

import pytest

__all__ = ["DAY", "TODAY", "at_noon"]

DAY = 86_400.0
TODAY = time.time() // DAY * DAY
"""Start of the day (UTC) on which this module was loaded; a run of all tests may last until the next day."""
_real = time.time
_ahead = TODAY + DAY / 2 - time.time()


def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of this process so that it was noon of `TODAY` when this module was loaded."""
    monkeypatch.setattr(time, "time", lambda: _real() + _ahead)
