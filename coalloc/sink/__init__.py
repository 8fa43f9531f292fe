"""Destination of fetched bytes: sparse writes beside the target, checksums as they arrive, one rename at the end."""

from coalloc.sink.existing import matching_bytes, resembles
from coalloc.sink.folder import discard
from coalloc.sink.held import HeldHere, held_in
from coalloc.sink.partial import PartialFile

__all__ = ["HeldHere", "PartialFile", "discard", "held_in", "matching_bytes", "resembles"]
