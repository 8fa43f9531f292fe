"""The HTTP engine: `HTTPSource` for http:// and https:// URLs."""

from coalloc.engine.http.source import HTTPSource

__all__ = ["HTTPSource"]
