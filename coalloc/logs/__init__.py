"""Logs of transfers by many programs, read as observations; one module per format."""

from coalloc.logs.log import Changed, Log, Refused
from coalloc.logs.reading import read_log

__all__ = ["Changed", "Log", "Refused", "read_log"]
