"""The crash-safe record of a transfer: ranges of a file, their sources and checksums. `format` defines it."""

from coalloc.journal.file import Journal, Recollection, describe, recall
from coalloc.journal.format import Header, Origin
from coalloc.journal.resume import staged

__all__ = ["Header", "Journal", "Origin", "Recollection", "describe", "recall", "staged"]
