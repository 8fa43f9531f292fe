"""Reports as files that can be sent, kept and printed: each is whole, and loads nothing from anywhere."""

from broker.reports.files.pages import page
from broker.reports.files.sheets import sheets

__all__ = ["page", "sheets"]
