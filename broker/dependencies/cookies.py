"""What browsers keep for us: no script can read it, and no other site can send it with a form."""

from starlette.responses import Response

__all__ = ["cookie", "keep"]


def cookie(name: str, home: str) -> str:
    """As it is called; where TLS is, such that browsers refuse one that another host has set."""
    return f"__Host-coget-{name}" if home.startswith("https:") else f"coget-{name}"


def keep(answer: Response, name: str, home: str, value: str, seconds: float) -> Response:
    """Let the browser keep this so long; 0: not any more."""
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
