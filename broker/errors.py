"""The error tree of the broker. Every error names the thing, what went wrong, and what to do.

    BrokerError
    ├── Unauthenticated    401  who is it? no token, or one that is unknown, expired or revoked
    ├── Forbidden          403  the role does not allow it
    ├── NotFound           404
    ├── Conflict           409  it contradicts what is known
    ├── TooLarge           413  more than is taken at once
    ├── Invalid            422  it can be read, and makes no sense
    ├── TooManyRequests    429  says when to come back
    └── Unavailable        503  the database cannot be used now

The number is the HTTP status. On the wire all have one shape: `{"error": {"code", "message", "remedy"}}`. What cannot
be read at all is refused before it gets here, with 400 (`broker.main`).
"""

__all__ = [
    "BrokerError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
]


class BrokerError(Exception):
    """An error a caller can act on.

    :param message: what went wrong, naming the thing
    :param remedy: what to do about it, as an imperative sentence
    """

    status = 500
    code = "defect"

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class Unauthenticated(BrokerError):
    """Nobody we know."""

    status = 401
    code = "unauthenticated"


class Forbidden(BrokerError):
    """Somebody we know, who may not."""

    status = 403
    code = "forbidden"


class NotFound(BrokerError):
    """There is no such thing."""

    status = 404
    code = "not_found"


class Conflict(BrokerError):
    """It contradicts what is known."""

    status = 409
    code = "conflict"


class TooLarge(BrokerError):
    """More than is taken at once."""

    status = 413
    code = "too_large"


class Invalid(BrokerError):
    """It can be read, and makes no sense."""

    status = 422
    code = "invalid"


class TooManyRequests(BrokerError):
    """One caller asks more often than it may.

    :param retry_after: seconds
    """

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, remedy: str = "", retry_after: int = 1) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after


class Unavailable(BrokerError):
    """The database cannot be used now."""

    status = 503
    code = "unavailable"
