"""Logs of transfers, of whatever program wrote them, read as observations: one format a file."""

from coalloc.logs.log import Changed, Log, Refused
from coalloc.logs.reading import read_log

__all__ = ["Changed", "Log", "Refused", "read_log"]
