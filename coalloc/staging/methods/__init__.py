"""The methods of collecting, one a file. Pure."""

from coalloc.staging.methods.adaptive import Adaptive
from coalloc.staging.methods.all_at_once import AllAtOnce
from coalloc.staging.methods.base import Method

__all__ = ["Adaptive", "AllAtOnce", "Method"]
