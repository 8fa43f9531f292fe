"""The error tree of the broker. Every error names the thing, what went wrong, and what to do.

    BrokerError
    ├── Refused            400  what OAuth2 refuses, in its words; 401 when a client is not who it says
    ├── Unauthenticated    401  who is it? no token, or one that is unknown, expired or revoked
    │   └── LoggedOut      303  a page wants somebody who has logged in, and says where
    ├── Forbidden          403  the role does not allow it
    │   ├── Insufficient   403  the token's scopes do not allow it
    │   └── NotGranted     403  nobody has granted this path of a collection
    ├── NotFound           404
    │   ├── NoCollection   404
    │   ├── NoTask         404
    │   └── NoBookmark     404
    ├── Conflict           409  it contradicts what is known
    │   └── Paused         409  an admin has paused it
    ├── Outdated           412  it is meant for what was there before
    ├── TooLarge           413  more than is taken at once
    ├── Invalid            422  it can be read, and makes no sense
    ├── TooManyRequests    429  says when to come back
    └── Unavailable        503  the database cannot be used now

The number is the HTTP status. On the wire all have one shape: `{"error": {"code", "message", "remedy"}}`, but where a
standard has its own (`broker.main`). What cannot be read at all is refused before it gets here, with 400.
"""

from coalloc.plain import one_line

__all__ = [
    "BrokerError",
    "Conflict",
    "Forbidden",
    "Insufficient",
    "Invalid",
    "LoggedOut",
    "NoBookmark",
    "NoCollection",
    "NoRole",
    "NoTask",
    "NotFound",
    "NotGranted",
    "Outdated",
    "Paused",
    "Refused",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
]


class BrokerError(Exception):
    """An error a caller can act on.

    :param message: what went wrong, naming the thing
    :param remedy: what to do about it, as an imperative sentence

    Servers and users have a say in both: they are escaped here, and are one line each.
    """

    status = 500
    code = "defect"

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = one_line(message), one_line(remedy)
        super().__init__(self.message)


class Refused(BrokerError):
    """What OAuth2 refuses.

    :param code: in the words of RFC 6749, 4.1.2.1 and 5.2
    :param status: 401 says that the client has to say who it is
    """

    status = 400
    code = "invalid_request"

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message, "see docs/reference/oauth.md")
        self.code = code
        self.status = status


class Unauthenticated(BrokerError):
    """Nobody we know.

    :param credential: which it was that is not good any more, if that is known; never told
    """

    status = 401
    code = "unauthenticated"

    def __init__(self, message: str, remedy: str = "", credential: str = "") -> None:
        super().__init__(message, remedy)
        self.credential = credential


class LoggedOut(Unauthenticated):
    """Nobody has logged in with this browser, or not lately.

    :param where: the address at which one does
    """

    def __init__(self, where: str) -> None:
        super().__init__("nobody is logged in", f"open {where}")
        self.where = where


class Forbidden(BrokerError):
    """Somebody we know, who may not."""

    status = 403
    code = "forbidden"


class NoRole(Forbidden):
    """Somebody to whom an identity provider gives no role here, or no longer."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} has no role here", "ask an admin of the broker which scope or group gives one")
        self.subject = subject


class Insufficient(Forbidden):
    """A token whose scopes do not allow it (RFC 6750, 3.1)."""

    code = "insufficient_scope"


class NotGranted(Forbidden):
    """A path of a collection that nobody has granted, or not for writing."""


class NotFound(BrokerError):
    """There is no such thing."""

    status = 404
    code = "not_found"


class NoCollection(NotFound):
    """There is no such collection, or it is none of the caller's business."""


class NoTask(NotFound):
    """There is no such task, or it is none of the caller's business."""


class NoBookmark(NotFound):
    """The caller has no such bookmark."""


class Conflict(BrokerError):
    """It contradicts what is known."""

    status = 409
    code = "conflict"


class Paused(Conflict):
    """An admin has paused it."""


class Outdated(BrokerError):
    """A change that is meant for another state of the resource."""

    status = 412
    code = "outdated"


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
