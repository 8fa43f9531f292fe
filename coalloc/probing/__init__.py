"""Measures what goes from server to server: few bytes, for a short time, beside nothing else of ours.

Who measures whom is decided by `rounds`, what the samples say by `samples`, both pure; `ends` are the servers that take
part, `measure` does it.
"""

from coalloc.probing.measure import Limits, measure

__all__ = ["Limits", "measure"]
