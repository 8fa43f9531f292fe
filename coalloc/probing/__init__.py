"""Measurements of the links between servers: few bytes, for a short time, with no other transfer of this call.

`rounds` chooses the pairs of servers and `samples` computes rates, both pure; `server` prepares the servers that take
part, and `measure` runs the measurements.
"""

from coalloc.probing.measure import ProbeLimits, measure

__all__ = ["ProbeLimits", "measure"]
