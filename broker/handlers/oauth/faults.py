"""Faults in the shapes that each path's clients read."""

from collections.abc import Mapping
from uuid import uuid4

from fastapi.responses import JSONResponse, Response

from broker.models.base import Fault
from broker.pages import page

__all__ = ["SHAPES", "api", "oauth", "people"]

WORDS = {
    "unauthenticated": "invalid_token",
    "forbidden": "access_denied",
    "too_many_requests": "temporarily_unavailable",
    "unavailable": "temporarily_unavailable",
    "defect": "server_error",
}
"""RFC 6749 and 6750 have words of their own; all others of ours say that the request makes no sense."""
TITLES = {401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 429: "TOO_MANY_REQUESTS"}
OURS = frozenset({"malformed", "invalid", "too_large", "not_found", "method_not_allowed", "conflict", "refused"})


def oauth(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """RFC 6749, 5.2; with the word once more where globus-sdk looks for a message, and the CLI for what to do."""
    word = WORDS.get(fault.code, "invalid_request" if fault.code in OURS else fault.code)
    each = {"status": str(status), "code": word.upper(), "title": word}
    shape = {"error": word, "error_description": fault.message, "errors": [each]}
    return JSONResponse(shape, 400 if status == 422 else status, {**headers, "Cache-Control": "no-store"})


def api(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """As Globus Auth writes it, and globus-sdk reads it."""
    code = TITLES.get(status, fault.code.upper())
    each = {"status": str(status), "id": str(uuid4()), "code": code, "title": fault.code, "detail": fault.message}
    shape = {"errors": [each], "error": fault.code, "error_description": fault.message}
    return JSONResponse(shape, status, dict(headers))


def people(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """A page."""
    answer = page("fault", status, message=fault.message, remedy=fault.remedy)
    answer.headers.update(headers)
    return answer


SHAPES = {
    "/v2/oauth2/authorize": people,
    "/v2/web/": people,
    "/reports": people,
    "/v2/oauth2/userinfo": api,
    "/v2/oauth2/": oauth,
    "/v2/api/": api,
}
"""By how paths begin; the first that fits."""
