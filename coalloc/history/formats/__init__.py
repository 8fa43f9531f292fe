"""Logs of transfers by many programs, read as observations; one module per format."""

from coalloc.history.formats.log import Changed, Log, Refused
from coalloc.history.formats.reading import read_log

__all__ = ["Changed", "Log", "Refused", "read_log"]
