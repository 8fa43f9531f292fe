"""Limits for the directory listings and trees of servers. Larger ones are refused; the error names the directory."""

__all__ = ["DEEPEST", "LIST_SECONDS", "MOST_BELOW", "MOST_ENTRIES", "MOST_LISTED", "MOST_NAMES"]

MOST_ENTRIES, MOST_LISTED = 1_000_000, 256 << 20
"""Maximum entries and bytes of the listing of one directory, which most callers keep in memory."""
LIST_SECONDS = 1800.0
"""Maximum seconds for the listing of one directory by http(s), or for one page of it."""
MOST_BELOW, MOST_NAMES = 250_000, 64 << 20
"""Maximum files and directories below a directory that is collected or registered, and characters of their paths."""
DEEPEST = 100
"""Maximum depth of nested directories. A deeper path is a loop, or an invention of the server."""
