"""The HTTP engine: `HTTPSource` for http:// and https:// URLs."""

import sys

from coalloc.engine.http.source import HTTPFindings, HTTPSource

__all__ = ["HTTPFindings", "HTTPSource"]

# Keep httpx from importing its command-line interface: that takes longer than a round trip to a distant server.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]
