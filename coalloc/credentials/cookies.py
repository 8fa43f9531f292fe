"""Cookies of one server, in bounded number and size, as a server could fill the memory with them."""

from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from typing import Any

__all__ = ["cookie_jar"]

MOST, LONGEST = 50, 4096
"""Maximum number of cookies, and characters of one: what RFC 6265, section 6.1, wants clients to keep at least."""


class _Bounded(DefaultCookiePolicy):
    """The usual rules of domains, paths and times, with these bounds."""

    def __init__(self, jar: CookieJar) -> None:
        super().__init__()
        self._jar = jar

    def set_ok(self, cookie: Cookie, request: Any) -> bool:
        fits = len(cookie.name) + len(cookie.value or "") <= LONGEST
        room = len(self._jar) < MOST or any(each.name == cookie.name for each in self._jar)
        return fits and room and super().set_ok(cookie, request)


def cookie_jar() -> CookieJar:
    """Return an empty jar for the cookies of one server."""
    jar = CookieJar()
    jar.set_policy(_Bounded(jar))
    return jar
