"""The HTTP engine: `HTTPSource` for http:// and https:// URLs."""

from coalloc.engine.http.source import HTTPFindings, HTTPSource

__all__ = ["HTTPFindings", "HTTPSource"]
