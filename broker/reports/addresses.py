"""Relative addresses of the pages about one pair, task or transfer; pure."""

from urllib.parse import urlencode

from broker.models.history import Pair

__all__ = ["pair_page", "task_page", "transfer_page"]


def pair_page(pair: Pair) -> str:
    """Return the address of a pair's page.

    >>> pair_page(Pair("ftp://a.example", "B"))
    'pair?source=ftp%3A%2F%2Fa.example&sink=B&direction=read'
    """
    return f"pair?{urlencode(pair._asdict())}"


def task_page(number: str) -> str:
    """Return the address of a task's page, by the task's id."""
    return f"task?{urlencode({'id': number})}"


def transfer_page(number: int) -> str:
    """Return the address of a transfer's page, by the number of its decision."""
    return f"transfer?{urlencode({'id': number})}"
