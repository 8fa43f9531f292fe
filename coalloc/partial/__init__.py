"""Partial data: its names until a file is complete (`names`), and users' folders with similar names (`lookalikes`)."""

from coalloc.partial.lookalikes import FETCHED, LOCK, looks_partial, mark_fetched
from coalloc.partial.names import LONGEST, MARK, at_random, beside, data_folder, derived, private

__all__ = [
    "FETCHED",
    "LOCK",
    "LONGEST",
    "MARK",
    "at_random",
    "beside",
    "data_folder",
    "derived",
    "looks_partial",
    "mark_fetched",
    "private",
]
