"""What all streams of server-sent events say."""

__all__ = ["RETRY", "UNHINDERED"]

RETRY = 1000
"""Milliseconds after which a browser that lost a stream asks for it again."""
UNHINDERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
"""The last is nginx's: it would hold a stream until it has a page of it."""
