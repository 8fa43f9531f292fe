"""Reports as files to send, keep and print: each is self-contained, and loads nothing."""

from broker.reports.files.pages import page
from broker.reports.files.sheets import sheets

__all__ = ["page", "sheets"]
