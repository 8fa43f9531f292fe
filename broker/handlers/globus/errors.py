"""Errors in the form of Globus, and the translation of servers' refusals into them."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from broker.errors import (
    AlreadyGranted,
    BrokerError,
    NoBookmark,
    NoCollection,
    NoTask,
    NotFound,
    NotGranted,
    NoTimer,
    Paused,
)
from broker.models.base import Fault, Wire
from coalloc.errors import AlreadyThere, CoallocError, IsDirectory, NoSuchFile, NotDirectory, PermissionRefused

__all__ = ["PREFIX", "ErrorDocument", "GlobusError", "NoItems", "NotOffered", "error", "refusals", "request_id"]

PREFIX = "/v0.10"
FLOWS = ("/flows", "/runs", "/registered_apis", "/web_inputs")
"""Path prefixes of Globus Flows, whose errors have another form."""
ROOTS = (PREFIX, "/v2", "/jobs", *FLOWS, "/v1")
"""Path prefixes of Globus clients: Transfer, Timers, and services that this broker does not offer."""
OWN = f"{PREFIX}/broker/"
"""Prefix of the broker's own API for the globus CLI; errors below it have the broker's form."""
KINDS: dict[type[BrokerError], str] = {
    AlreadyGranted: "Exists",
    NoBookmark: "BookmarkNotFound",
    NoCollection: "EndpointNotFound",
    NoTask: "TaskNotFound",
    NoTimer: "TimerNotFound",
    NotGranted: "EndpointPermissionDenied",
    Paused: "Conflict.Paused",
}
CODES = {
    "conflict": "Conflict",
    "defect": "InternalError",
    "forbidden": "PermissionDenied",
    "insufficient_scope": "PermissionDenied",
    "invalid": "ClientError.BadRequest",
    "malformed": "ClientError.BadRequest",
    "method_not_allowed": "ClientError.MethodNotAllowed",
    "not_found": "ClientError.NotFound",
    "outdated": "ClientError.PreconditionFailed",
    "too_large": "ClientError.RequestTooLarge",
    "refused": "ClientError",
    "too_many_requests": "ClientError.TooManyRequests",
    "unauthenticated": "ClientError.AuthenticationFailed",
    "unavailable": "ServiceUnavailable",
}


class ErrorDocument(Wire):
    """An error in the form of Globus; `resource` is the path of the request."""

    code: str
    message: str
    request_id: str
    resource: str


class FlowsErrorDocument(ErrorDocument):
    """An error in the form of Globus Flows, without which the globus CLI ends with a traceback."""

    error: dict[str, str]


class GlobusError(BrokerError):
    """A failure of a collection's server; Globus SDKs do not retry status 502 with these codes."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.code = code


class NotOffered(NotFound):
    """A service of Globus that this broker does not offer."""

    code = "NotOffered"

    def __init__(self, service: str) -> None:
        super().__init__(f"{service} is not offered by this broker", "see docs/reference/globus.md for what is")


class NoItems(BrokerError):
    """A task without items."""

    status = 400
    code = "ClientError.BadRequest.NoTransferItems"


def error(path: str, status: int, fault: Fault, cause: BrokerError | None) -> tuple[int, ErrorDocument] | None:
    """Return the status and document for a failed request to a path of the Globus API; None for other paths."""
    if not _is_below(path, ROOTS) or path.startswith(OWN):
        return None
    known = CODES.get(fault.code, fault.code)
    code = KINDS.get(type(cause), known) if cause else known
    message = f"{fault.message}: {fault.remedy}" if fault.remedy else fault.message
    document = ErrorDocument(code=code, message=message, request_id=request_id(), resource=path)
    if _is_below(path, FLOWS):
        document = FlowsErrorDocument(**document.model_dump(), error={"code": code, "detail": message})
    return 400 if status == 422 else status, document  # Globus has no 422


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    return f"{path}/".startswith(tuple(f"{root}/" for root in roots))


def request_id() -> str:
    """Return a random request id for the document, as Globus has it."""
    return secrets.token_urlsafe(7)[:9]


@contextmanager
def refusals(operation: str) -> Iterator[None]:
    """Translate errors of a collection's server into Globus errors.

    :param operation: Globus name of the operation: `DirListing`, `Mkdir`, `Rename`, `Stat`
    """
    try:
        yield
    except CoallocError as refused:
        status, code = _status_and_code(operation, refused)
        raise GlobusError(status, code, refused.message, refused.remedy) from None


def _status_and_code(operation: str, refused: CoallocError) -> tuple[int, str]:
    if isinstance(refused, PermissionRefused):
        return 403, "EndpointPermissionDenied"
    if operation == "Stat" and isinstance(refused, NoSuchFile):
        return 404, "NotFound"  # the CLI recognizes this code
    if isinstance(refused, NotDirectory | IsDirectory):
        return 502, f"ExternalError.{operation}Failed.{type(refused).__name__}"
    if isinstance(refused, NoSuchFile):
        return 404, "ClientError.NotFound"
    if isinstance(refused, AlreadyThere):
        return 502, f"ExternalError.{operation}Failed.Exists"
    return 502, f"EndpointError.{type(refused).__name__}"
