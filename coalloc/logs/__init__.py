"""Logs of transfers, of whatever program wrote them, read as observations: one format a file."""

from coalloc.logs.log import Log, Refused
from coalloc.logs.reading import read_log

__all__ = ["Log", "Refused", "read_log"]
