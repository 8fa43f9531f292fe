"""Measurements of the links between servers: few bytes, for a short time, with no other transfer of ours beside them.

`rounds` decides which servers measure each other and `samples` evaluates the samples, both pure; `server` holds the
servers that take part, `measure` runs the measurements.
"""

from coalloc.probing.measure import ProbeLimits, measure

__all__ = ["ProbeLimits", "measure"]
