"""Promised finish times and rates: how likely they are, and what is needed to keep them. Pure."""

__all__ = ["LOOK"]

LOOK = 1.0
"""Seconds between two looks at a transfer, at which its forecast is renewed and more sources may be added."""
