"""What survives a crash: which bytes of a file are here, from whom, with which checksums. `format` has the promise."""

from coalloc.journal.file import Journal, Recollection, describe, recall
from coalloc.journal.format import Header, Origin
from coalloc.journal.resume import staged

__all__ = ["Header", "Journal", "Origin", "Recollection", "describe", "recall", "staged"]
