"""Case-insensitive search for literal text in columns."""

from sqlalchemy import ColumnElement, func

__all__ = ["contains"]


def contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Return a condition for columns that contain this text, in any case; no character of it is a wildcard."""
    escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return func.lower(column).like(f"%{escaped}%", escape="\\")
