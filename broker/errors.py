"""The errors of the broker. Each names the object, the failure and the remedy.

    BrokerError
    ├── Refused            400  an error of OAuth2, in its terms; 401 when the client is not authenticated
    ├── Unauthenticated    401  the token is missing, unknown, expired or revoked
    │   └── LoggedOut      303  a page needs a login, and redirects to it
    ├── Forbidden          403  the role does not allow it
    │   ├── Insufficient   403  the token's scopes do not allow it
    │   └── NotGranted     403  the path of a collection was not granted
    ├── NotFound           404
    │   ├── NoCollection   404
    │   ├── NoTask         404
    │   ├── NoBookmark     404
    │   └── NoTimer        404
    ├── Conflict           409  the request contradicts the stored state
    │   ├── AlreadyGranted 409  an access rule for this principal and path exists
    │   └── Paused         409  an admin has paused the operation
    ├── Outdated           412  the resource has changed since the caller read it
    ├── TooLarge           413  the request exceeds a limit
    ├── Invalid            422  the request can be parsed, but is not valid
    ├── TooManyRequests    429  with the seconds until the next try
    └── Unavailable        503  the database cannot be used now

The number is the HTTP status. Responses have the form `{"error": {"code", "message", "remedy"}}`, except for APIs
with a standard form (`broker.main`). A request that cannot be parsed is refused earlier, with 400.
"""

from coalloc.errors import PermissionRefused
from coalloc.safe_text import one_line

__all__ = [
    "AlreadyGranted",
    "BrokerError",
    "Conflict",
    "CredentialRefused",
    "Forbidden",
    "Insufficient",
    "Invalid",
    "LoggedOut",
    "NoBookmark",
    "NoCollection",
    "NoRole",
    "NoTask",
    "NoTimer",
    "NotFound",
    "NotGranted",
    "OAuthRefused",
    "Outdated",
    "Paused",
    "TooLarge",
    "TooManyRequests",
    "Unauthenticated",
    "Unavailable",
]


class BrokerError(Exception):
    """An error that a caller can act on.

    :param message: what went wrong, naming the object
    :param remedy: what to do about it, as an imperative sentence

    Both may contain text from servers and users, so the constructor escapes control characters and line breaks.
    """

    status = 500
    code = "defect"

    def __init__(self, message: str, remedy: str = "") -> None:
        self.message, self.remedy = one_line(message), one_line(remedy)
        super().__init__(self.message)


class OAuthRefused(BrokerError):
    """A refusal as OAuth2 defines it.

    :param code: error code of RFC 6749, 4.1.2.1 and 5.2
    :param status: HTTP status; 401 asks the client to authenticate
    """

    status = 400
    code = "invalid_request"

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message, "see docs/reference/oauth.md")
        self.code = code
        self.status = status


class Unauthenticated(BrokerError):
    """A caller who is not authenticated.

    :param credential: the credential that is no longer valid, if known; never shown to the caller
    """

    status = 401
    code = "unauthenticated"

    def __init__(self, message: str, remedy: str = "", credential: str = "") -> None:
        super().__init__(message, remedy)
        self.credential = credential


class LoggedOut(Unauthenticated):
    """A browser without a valid login.

    :param where: URL of the login page
    """

    def __init__(self, where: str) -> None:
        super().__init__("you are not logged in", f"open {where}")
        self.where = where


class Forbidden(BrokerError):
    """An authenticated caller who may not do this."""

    status = 403
    code = "forbidden"


class NoRole(Forbidden):
    """A user whose identity provider grants no role at this broker."""

    def __init__(self, subject: str) -> None:
        super().__init__(f"{subject} has no role here", "ask an admin of the broker which scope or group gives one")
        self.subject = subject


class Insufficient(Forbidden):
    """A token whose scopes do not allow the request (RFC 6750, 3.1)."""

    code = "insufficient_scope"


class NotGranted(Forbidden):
    """A path of a collection to which the caller has no access, or no write access."""


class NotFound(BrokerError):
    """An object that does not exist."""

    status = 404
    code = "not_found"


class NoCollection(NotFound):
    """A collection that does not exist, or that the caller may not see."""


class NoTask(NotFound):
    """A task that does not exist, or that the caller may not see."""


class NoBookmark(NotFound):
    """A bookmark that the caller does not have."""


class NoTimer(NotFound):
    """A timer that the caller does not have."""


class Conflict(BrokerError):
    """A request that contradicts the stored state."""

    status = 409
    code = "conflict"


class AlreadyGranted(Conflict):
    """A new access rule where one for the same principal and path exists."""


class Paused(Conflict):
    """An operation that an admin has paused."""


class Outdated(BrokerError):
    """A conditional change of a resource that has changed since the caller read it."""

    status = 412
    code = "outdated"


class TooLarge(BrokerError):
    """A request that exceeds a limit."""

    status = 413
    code = "too_large"


class Invalid(BrokerError):
    """A request that can be parsed, but is not valid."""

    status = 422
    code = "invalid"


class TooManyRequests(BrokerError):
    """Requests of one caller above the rate limit.

    :param retry_after: seconds until the caller may try again
    """

    status = 429
    code = "too_many_requests"

    def __init__(self, message: str, remedy: str = "", retry_after: int = 1) -> None:
        super().__init__(message, remedy)
        self.retry_after = retry_after


class Unavailable(BrokerError):
    """A database that does not answer now."""

    status = 503
    code = "unavailable"


class CredentialRefused(PermissionRefused):
    """A collection's credential that is not configured here, or not for the collection's endpoint."""
