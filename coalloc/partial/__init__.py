"""Partial data: what it is called until a file is whole (`names`), and folders of users that look like it."""

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
