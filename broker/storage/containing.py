"""Text that contains other text, whatever marks are in it."""

from sqlalchemy import ColumnElement, func

__all__ = ["contains"]


def contains(column: ColumnElement[str], text: str) -> ColumnElement[bool]:
    """Whether a column has this in it, in capitals or not; nothing in it stands for anything else."""
    escaped = text.lower().replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return func.lower(column).like(f"%{escaped}%", escape="\\")
