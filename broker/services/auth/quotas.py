"""Quotas: numbers of rows that users may add within an hour."""

import math
import time

from broker.errors import TooLarge, TooManyRequests
from broker.models.callers import Role

__all__ = ["Quotas"]

HOUR = 3600.0
MOST_USERS = 10_000


class Quotas:
    """The quota of each user except admins: a token bucket, which an hour fills from empty to full.

    :param hourly: rows per hour (reported transfers, imported names), and size of the bucket
    """

    def __init__(self, hourly: int) -> None:
        self._hourly = hourly
        self._added: dict[str, tuple[float, float]] = {}

    def take(self, subject: str, role: Role, rows: int) -> None:
        """Count rows that a user adds.

        :raises TooManyRequests: when the rows exceed the remaining quota
        :raises TooLarge: when the rows exceed the whole quota
        """
        if role == "admin":
            return
        now = time.monotonic()
        added, at = self._added.get(subject, (0.0, now))
        added = max(0.0, added - (now - at) * self._hourly / HOUR)
        if rows > self._hourly:
            raise TooLarge(
                f"{subject} may add {self._hourly} rows in an hour, not {rows} at once",
                f"send at most {self._hourly} rows at a time, or ask an admin to raise added_per_hour",
            )
        if added + rows > self._hourly:
            after = math.ceil(((added + rows) / self._hourly - 1) * HOUR) + 1
            raise TooManyRequests(
                f"{subject} has added {added:.0f} rows in this hour, of {self._hourly}",
                f"try again in {after} s, or ask an admin to raise added_per_hour",
                after,
            )
        if len(self._added) >= MOST_USERS:
            self._added.clear()
        self._added[subject] = (added + rows, now)
