"""Settings that all streams of server-sent events share."""

__all__ = ["RETRY", "UNHINDERED"]

RETRY = 1000
"""Milliseconds after which a browser that lost a stream asks for it again."""
UNHINDERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""Headers of streams. The last one is for nginx, which would otherwise buffer a stream until a page of it is full."""
