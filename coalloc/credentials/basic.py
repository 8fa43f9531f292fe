"""User and password as the header Authorization has them (RFC 7617). Pure."""

from base64 import b64decode, b64encode
from contextlib import suppress
from urllib.parse import unquote, urlsplit

__all__ = ["basic", "login_of", "password_in"]


def basic(user: str, password: str) -> str:
    """Return the value of the header.

    >>> basic("ann", "hush"), password_in(basic("ann", "hush"))
    ('Basic YW5uOmh1c2g=', 'hush')
    """
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def login_of(url: str) -> str | None:
    """Return the value of the header for a URL; None if it has no user and password.

    >>> login_of("https://ann:h%75sh@host/x"), login_of("https://host/x@y")
    ('Basic YW5uOmh1c2g=', None)
    """
    login, _, _ = urlsplit(url).netloc.rpartition("@")
    user, _, password = (unquote(part) for part in login.partition(":"))
    return basic(user, password) if user or password else None


def password_in(value: str) -> str:
    """Return the password in the value of a header; empty if there is none."""
    kind, _, rest = value.partition(" ")
    if kind.lower() == "basic":
        with suppress(ValueError):
            return b64decode(rest).decode(errors="replace").partition(":")[2]
    return ""
