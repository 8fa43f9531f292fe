"""Logs of transfers by many programs, read as observations; one module per format."""

from coalloc.history.formats.log import ChangedValue, RefusedLine, TransferLog
from coalloc.history.formats.reading import read_log

__all__ = ["ChangedValue", "RefusedLine", "TransferLog", "read_log"]
