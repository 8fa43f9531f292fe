"""Durations and counts as text for users."""

__all__ = ["NOTHING", "counted", "duration"]

NOTHING = "no earlier transfer tells its rate"
"""Text used if no rate is known."""

HOUR = 3600.0
DAY = 24 * HOUR


def duration(seconds: float) -> str:
    """Return a duration in the largest unit of which it contains at least two.

    >>> duration(90), duration(25 * HOUR), duration(10 * DAY)
    ('90 seconds', '25 hours', '10 days')
    """
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun in the singular or plural.

    >>> counted(1, "transfer"), counted(20, "transfer")
    ('one transfer', '20 transfers')
    """
    return f"one {noun}" if count == 1 else f"{count} {noun}s"
