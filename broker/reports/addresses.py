"""Where pages of single things are, seen from any other page; pure."""

from urllib.parse import urlencode

from broker.models.history import Pair

__all__ = ["pair_page", "task_page", "transfer_page"]


def pair_page(pair: Pair) -> str:
    """Of a way that bytes go.

    >>> pair_page(Pair("ftp://a.example", "B"))
    'pair?source=ftp%3A%2F%2Fa.example&sink=B&direction=read'
    """
    return f"pair?{urlencode(pair._asdict())}"


def task_page(number: str) -> str:
    """Of a task of this id."""
    return f"task?{urlencode({'id': number})}"


def transfer_page(number: int) -> str:
    """Of a transfer, by the number of its decision."""
    return f"transfer?{urlencode({'id': number})}"
