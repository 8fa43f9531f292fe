"""Cookies of one server, in bounded number and size, as a server could fill the memory with them."""

from email.message import Message
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from types import SimpleNamespace
from typing import Any

__all__ = ["cookie_jar"]

MOST, LONGEST = 50, 4096
"""Maximum number of cookies, and characters of one: what RFC 6265, section 6.1, wants clients to keep at least."""
FIELD = 2 * LONGEST
"""Maximum characters of a Set-Cookie field: a cookie with all its attributes, of which the jar keeps unknown ones."""


class _Bounded(DefaultCookiePolicy):
    """The usual rules of domains, paths and times, with these bounds."""

    def __init__(self, jar: CookieJar) -> None:
        super().__init__()
        self._jar = jar

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        fits = len(cookie.name) + len(cookie.value or "") + len(cookie.path) <= LONGEST
        known = [(each.domain, each.path, each.name) for each in self._jar] if fits else []
        room = len(known) < MOST or (cookie.domain, cookie.path, cookie.name) in known
        return fits and room and super().set_ok(cookie, request)


class _BoundedJar(CookieJar):
    """A jar that reads only the first Set-Cookie fields of a response: thousands would take seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.set_policy(_Bounded(self))

    def extract_cookies(self, response: Any, request: Any) -> None:
        read = Message()
        for field in response.info().get_all("Set-Cookie", [])[:MOST]:
            if len(field) <= FIELD:
                read["Set-Cookie"] = field
        super().extract_cookies(SimpleNamespace(info=lambda: read), request)  # type: ignore[arg-type]


def cookie_jar() -> CookieJar:
    """Return an empty jar for the cookies of one server."""
    return _BoundedJar()
