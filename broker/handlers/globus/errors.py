"""Errors as Globus's clients know them, and what servers of collections refuse as one of these."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from broker.errors import BrokerError, NoBookmark, NoCollection, NoTask, NotGranted, Paused
from broker.models.base import Fault, Wire
from coalloc.errors import AlreadyThere, CoallocError, IsDirectory, NoSuchFile, NotDirectory, PermissionRefused

__all__ = ["PREFIX", "ErrorDocument", "GlobusError", "NoItems", "error", "refusals", "request_id"]

PREFIX = "/v0.10"
ROOTS = (PREFIX, "/v2")
"""Below which its clients ask; of `/v2` what is no login is tunnels and other things that there are none of here."""
OWN = f"{PREFIX}/broker/"
"""Our own interface, where the globus CLI can reach it: its errors have our own shape."""
KINDS: dict[type[BrokerError], str] = {
    NoBookmark: "BookmarkNotFound",
    NoCollection: "EndpointNotFound",
    NoTask: "TaskNotFound",
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
    """What went wrong, as Globus says it; `resource` is the path that was asked for."""

    code: str
    message: str
    request_id: str
    resource: str


class GlobusError(BrokerError):
    """What a server of a collection refused; SDKs do not repeat requests that fail with 502 and such a code."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.status = status
        self.code = code


class NoItems(BrokerError):
    """A task with nothing to do."""

    status = 400
    code = "ClientError.BadRequest.NoTransferItems"


def error(path: str, status: int, fault: Fault, cause: BrokerError | None) -> tuple[int, ErrorDocument] | None:
    """The status and the document of a failed request to this path; None where Globus has no say."""
    if not f"{path}/".startswith(tuple(f"{root}/" for root in ROOTS)) or path.startswith(OWN):
        return None
    known = CODES.get(fault.code, fault.code)
    code = KINDS.get(type(cause), known) if cause else known
    message = f"{fault.message}: {fault.remedy}" if fault.remedy else fault.message
    document = ErrorDocument(code=code, message=message, request_id=request_id(), resource=path)
    return 400 if status == 422 else status, document  # Globus has no 422


def request_id() -> str:
    """What users may quote."""
    return secrets.token_urlsafe(7)[:9]


@contextmanager
def refusals(operation: str) -> Iterator[None]:
    """What a server refuses becomes Globus's error.

    :param operation: as Globus calls its failure: `DirListing`, `Mkdir`, `Rename`, `Stat`
    """
    try:
        yield
    except CoallocError as refused:
        status, code = _said(operation, refused)
        raise GlobusError(status, code, refused.message, refused.remedy) from None


def _said(operation: str, refused: CoallocError) -> tuple[int, str]:
    if isinstance(refused, PermissionRefused):
        return 403, "EndpointPermissionDenied"
    if operation == "Stat" and isinstance(refused, NoSuchFile):
        return 404, "NotFound"  # the CLI knows it by this word
    if isinstance(refused, NotDirectory | IsDirectory):
        return 502, f"ExternalError.{operation}Failed.{type(refused).__name__}"
    if isinstance(refused, NoSuchFile):
        return 404, "ClientError.NotFound"
    if isinstance(refused, AlreadyThere):
        return 502, f"ExternalError.{operation}Failed.Exists"
    return 502, f"EndpointError.{type(refused).__name__}"
