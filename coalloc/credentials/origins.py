"""Origins of URLs: scheme, host and port, which together name a web server. Pure."""

from typing import NamedTuple, Self
from urllib.parse import urlsplit

__all__ = ["WebOrigin", "ascii_host", "host_port"]

PORTS = {"http": 80, "https": 443}
LOOPBACK = ("localhost", "127.0.0.1", "::1")


class WebOrigin(NamedTuple):
    """A web server: scheme and host in lower case, the host in ASCII and without brackets, and the port."""

    scheme: str
    host: str
    port: int

    @classmethod
    def of(cls, url: str) -> Self:
        """Return the origin of a URL.

        >>> WebOrigin.of("HTTPS://ann:secret@SE.example/x"), str(WebOrigin.of("http://[::1]:8080/"))
        (WebOrigin(scheme='https', host='se.example', port=443), 'http://[::1]:8080')

        :raises ValueError: for an impossible host or port
        """
        parts = urlsplit(url)
        return cls.made(parts.scheme, parts.hostname or "", parts.port)

    @classmethod
    def made(cls, scheme: str, host: str, port: int | None) -> Self:
        """Return the origin with these parts; `port` is None for the usual one."""
        return cls(scheme, ascii_host(host), port or PORTS.get(scheme, 0))

    @property
    def is_loopback(self) -> bool:
        """Return whether the host is this machine."""
        return self.host in LOOPBACK

    @property
    def has_usual_port(self) -> bool:
        return self.port == PORTS.get(self.scheme)

    @property
    def place(self) -> str:
        """HOST or HOST:PORT, as the keys of rules are written."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.has_usual_port else f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.place}"


def ascii_host(host: str) -> str:
    """Return a host in lower case, and in the form in which it is looked up (IDNA), as httpx does.

    >>> ascii_host("B\u00fccher.example"), ascii_host("SE.example")
    ('xn--bcher-kva.example', 'se.example')

    :raises ValueError: for an impossible host
    """
    if host.isascii():
        return host.lower()
    import idna

    return idna.encode(host.lower()).decode()


def host_port(text: str) -> tuple[str, int | None]:
    """Return host and port of HOST or HOST:PORT; the port is None for the usual one of a scheme.

    >>> host_port("SE.example:8443"), host_port("[::1]")
    (('se.example', 8443), ('::1', None))

    :raises ValueError: for anything else
    """
    parts = urlsplit(f"//{text}")
    if not parts.hostname or "@" in text or parts.netloc != text or parts.port == 0 or "*" in text:
        raise ValueError(f"{text!r} is not HOST or HOST:PORT")
    return ascii_host(parts.hostname), parts.port
