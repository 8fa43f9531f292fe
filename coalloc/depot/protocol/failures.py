"""Reasons why a depot refuses a session, or cannot carry it. Pure."""

from typing import Literal, get_args

__all__ = ["CODES", "CONNECTING", "UNFIT", "DepotFailure", "FailureCode"]

FailureCode = Literal[
    "malformed",
    "unsupported",
    "denied",
    "ticket",
    "loop",
    "busy",
    "closing",
    "unknown_host",
    "unreachable",
    "refused",
    "timeout",
]
"""Kind of a failure:

- malformed, unsupported: the request is invalid, or asks for what the depot cannot do
- denied: the client or the destination is not allowed
- ticket: the ticket is missing, forged, expired, used up, or for something else
- loop: the route leads through a depot twice
- busy, closing: a limit is reached, or the depot is shutting down
- unknown_host, unreachable, refused, timeout: the next hop cannot be reached
"""
CONNECTING: frozenset[FailureCode] = frozenset({"unknown_host", "unreachable", "refused", "timeout"})
"""Failures of the next hop, not of the depot that reports them."""
UNFIT: frozenset[FailureCode] = frozenset({"busy", "closing", "ticket"})
"""Failures of the depot that reports them, in other sessions, too."""
CODES: frozenset[str] = frozenset(get_args(FailureCode))


class DepotFailure(Exception):
    """A session that a depot refuses, or cannot carry.

    :param hop: position of the depot that reports it, in the session's route, from 0; None for the one that raises this
    """

    def __init__(self, code: FailureCode, message: str, hop: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hop = hop
