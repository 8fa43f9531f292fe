"""The log of what servers are asked and of their answers, which `coget -v` shows.

Callers remove secrets; the log's formatter escapes the text, which may come from servers.
"""

import logging

__all__ = ["answered", "asked", "is_on", "log"]

log = logging.getLogger("coalloc.requests")
"""The log. Its level is DEBUG; nothing is formatted unless the log is shown."""


def is_on() -> bool:
    """Return whether the log is shown anywhere."""
    return log.isEnabledFor(logging.DEBUG)


def asked(where: str, what: str) -> None:
    """Log a request to a server."""
    log.debug("%s > %s", where, what)


def answered(where: str, what: str) -> None:
    """Log an answer of a server."""
    log.debug("%s < %s", where, what)
