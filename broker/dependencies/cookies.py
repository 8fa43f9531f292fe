"""The broker's cookies: no script can read them, and no other site can send them with a form."""

from starlette.responses import Response

__all__ = ["cookie", "keep"]


def cookie(name: str, home: str) -> str:
    """Return the full name of a cookie; with TLS it has a prefix that makes browsers refuse one set by another host."""
    return f"__Host-coget-{name}" if home.startswith("https:") else f"coget-{name}"


def keep(answer: Response, name: str, home: str, value: str, seconds: float) -> Response:
    """Set a cookie with this lifetime in an answer, and return the answer; 0 deletes the cookie."""
    answer.set_cookie(
        cookie(name, home),
        value,
        max_age=int(seconds),
        path="/",
        secure=home.startswith("https:"),
        httponly=True,
        samesite="lax",
    )
    return answer
