"""A file on this machine while it is fetched: sparse writes beside the target, one rename at the end, and a journal.

The journal is the crash-safe record of a transfer: ranges of the file, their sources and checksums (`format`).
"""

from coalloc.partial_file.existing import is_comparable, matching_bytes, resembles
from coalloc.partial_file.folder import clear_left, discard
from coalloc.partial_file.format import Header, JournalOrigin
from coalloc.partial_file.journal import Journal, Recollection, describe, recall
from coalloc.partial_file.name_equality import HeldHere, held_in
from coalloc.partial_file.partial import PartialFile
from coalloc.partial_file.resume import staged

__all__ = [
    "Header",
    "HeldHere",
    "Journal",
    "JournalOrigin",
    "PartialFile",
    "Recollection",
    "clear_left",
    "describe",
    "discard",
    "held_in",
    "is_comparable",
    "matching_bytes",
    "recall",
    "resembles",
    "staged",
]
