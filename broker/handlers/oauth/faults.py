"""Errors in the forms that clients expect at each path."""

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
"""Error codes of RFC 6749 and 6750; all other codes of the broker become `invalid_request`."""
TITLES = {401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 429: "TOO_MANY_REQUESTS"}
OURS = frozenset({"malformed", "invalid", "too_large", "not_found", "method_not_allowed", "conflict", "refused"})


def oauth(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error in the form of RFC 6749, 5.2.

    The code is repeated in `errors`, where globus-sdk looks for a message, and the CLI for instructions.
    """
    word = WORDS.get(fault.code, "invalid_request" if fault.code in OURS else fault.code)
    each = {"status": str(status), "code": word.upper(), "title": word}
    shape = {"error": word, "error_description": fault.message, "errors": [each]}
    return JSONResponse(shape, 400 if status == 422 else status, {**headers, "Cache-Control": "no-store"})


def api(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error in the form of Globus Auth, which globus-sdk reads."""
    code = TITLES.get(status, fault.code.upper())
    each = {"status": str(status), "id": str(uuid4()), "code": code, "title": fault.code, "detail": fault.message}
    shape = {"errors": [each], "error": fault.code, "error_description": fault.message}
    return JSONResponse(shape, status, dict(headers))


def people(status: int, fault: Fault, headers: Mapping[str, str]) -> Response:
    """Return an error as a page."""
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
"""Error forms by the beginning of the path; the first match counts."""
