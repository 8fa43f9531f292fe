"""Limits for directories and trees that servers list. Larger ones are refused, with the name of the folder."""

__all__ = ["DEEPEST", "MOST_BELOW", "MOST_ENTRIES", "MOST_LISTED", "MOST_NAMES"]

MOST_ENTRIES, MOST_LISTED = 1_000_000, 256 << 20
"""Entries and bytes of the listing of one directory: most callers keep the result in memory."""
MOST_BELOW, MOST_NAMES = 250_000, 64 << 20
"""Files and folders below a directory that is collected or registered at once, and characters of their paths."""
DEEPEST = 100
"""Nesting depth of folders. A deeper path leads in a circle, or was invented."""
