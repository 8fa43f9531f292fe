"""Common parts of reports' queries: size classes, dates, and the URLs of the pages of a pair, task or transfer."""

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from pydantic import BeforeValidator, Field

from broker.models.base import Moment
from broker.models.history import Pair
from broker.reports.words import size_span
from predictors.context import SIZES

__all__ = ["Day", "SizeClass", "day_of", "pair_page", "task_page", "transfer_page"]

CLASSES = {str(number): size_span(number) for number in range(len(SIZES) + 1)}


def _moment(value: Any) -> Any:
    """Return a date such as 2026-11-22 in epoch seconds (UTC), and any other value unchanged."""
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()
    except (TypeError, ValueError):
        return value


def day_of(moment: float) -> str:
    """Return the date of a moment (UTC).

    >>> day_of(1795305600.0)
    '2026-11-22'
    """
    return datetime.fromtimestamp(moment, UTC).date().isoformat()


SizeClass = Annotated[int, Field(ge=0, le=len(SIZES), json_schema_extra={"words": CLASSES})]
"""A size class of `predictors.context`; forms offer the range of sizes of each."""
Day = Annotated[
    Moment,
    BeforeValidator(_moment),
    Field(description="Seconds since 1970 (UTC), or a date like 2026-11-22", json_schema_extra={"day": True}),
]
"""A moment, for which forms have a date field."""


def pair_page(pair: Pair) -> str:
    """Return the relative URL of a pair's page.

    >>> pair_page(Pair("ftp://a.example", "B"))
    'pair?source=ftp%3A%2F%2Fa.example&sink=B&direction=read'
    """
    return f"pair?{urlencode(pair._asdict())}"


def task_page(number: str) -> str:
    """Return the relative URL of a task's page, by the task's id."""
    return f"task?{urlencode({'id': number})}"


def transfer_page(number: int) -> str:
    """Return the relative URL of a transfer's page, by the number of its decision."""
    return f"transfer?{urlencode({'id': number})}"
