"""Checks of the rates and deadlines that users ask for; NaN is refused. Pure."""

from coalloc.errors import UsageError
from coalloc.model.promises import Deadline

__all__ = ["check_deadline", "check_rate"]

HIGHEST = 2.0**63
"""Bytes per second that no rate reaches."""
LATEST = 1e11
"""Seconds since the epoch that no deadline reaches."""
LEAST, MOST = 0.5, 0.999
"""Limits of probabilities, and of shares of the seconds."""
PERCENTAGES = f"from {100 * LEAST:g} to {100 * MOST:g} %"


def check_rate(rate: float, share: float) -> None:
    """Check a rate in bytes per second, and the share of the seconds in which to have it.

    :raises UsageError: if one of them is not a number within its limits
    """
    if not 1 <= rate < HIGHEST:
        raise UsageError(f"{rate} bytes per second cannot be promised", "use a rate of at least 1, such as '5 MB/s'")
    if not LEAST <= share <= MOST:
        raise UsageError(f"{100 * share:g} % of the seconds cannot be promised", f"use a share {PERCENTAGES}")


def check_deadline(deadline: Deadline) -> None:
    """Check a deadline and its probability.

    :raises UsageError: if one of them is not a number within its limits
    """
    if not 0 <= deadline.at < LATEST:
        raise UsageError(f"{deadline.at} is not a valid time for a deadline", "use seconds since the epoch")
    if not LEAST <= deadline.sure <= MOST:
        raise UsageError(
            f"{100 * deadline.sure:g} % cannot be promised for a deadline", f"use a probability {PERCENTAGES}"
        )
