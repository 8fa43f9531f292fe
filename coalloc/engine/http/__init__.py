"""The HTTP engine: `HTTPSource` for http:// and https:// URLs."""

import sys

from coalloc.engine.http.source import HTTPSource, Known

__all__ = ["HTTPSource", "Known"]

# The command line of httpx, which it would load with itself: that takes longer than a round trip to a far server.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
