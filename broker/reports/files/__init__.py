"""Reports as self-contained files to send, keep and print."""

from broker.reports.files.pages import page
from broker.reports.files.sheets import sheets

__all__ = ["page", "sheets"]
