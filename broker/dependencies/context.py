"""The services of the application, and the broker's public URL.

The URL is the configured one, or the address at which the connection was accepted. The header `Host` is not trusted,
because clients can forge it.
"""

import ipaddress
import re
from typing import Annotated, cast

from fastapi import Depends, Request

from broker.factory import Factory

__all__ = ["Home", "Services", "found_at"]

HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.-]+)(?::(?P<port>[0-9]{1,5}))?")
USUAL = {"http": 80, "https": 443}


def found_at(scheme: str, host: str, server: tuple[str, int | None] | None) -> str:
    """Return the broker's origin for URLs in a response: the address at which the connection was accepted.

    `Host` is used only if it names the same address, or if both are loopback addresses, because a tunnel may use
    another port.

    :param host: header `Host`; empty if there is none
    :param server: address and port of the socket; port None is the default port of the scheme

    >>> found_at("http", "192.0.2.1:8642", ("192.0.2.1", 8642)), found_at("http", "evil.example", ("192.0.2.1", 8642))
    ('http://192.0.2.1:8642', 'http://192.0.2.1:8642')
    >>> found_at("https", "localhost:9000", ("127.0.0.1", 8642)), found_at("http", "localhost", ("192.0.2.1", 80))
    ('https://localhost:9000', 'http://192.0.2.1')
    >>> found_at("http", "[::1]:80", ("::1", 8642)), found_at("http", "", ("::1", 8642))
    ('http://[::1]', 'http://[::1]:8642')
    """
    name, port = server or ("localhost", None)
    name = name.partition("%")[0].lower()
    own = (f"[{name}]" if ":" in name else name, port or USUAL.get(scheme, 80))
    match = HOST.fullmatch(host)
    if match is not None:
        requested = (match["name"].lower(), int(match["port"] or USUAL.get(scheme, 80)))
        if requested == own or (_loopback(own[0]) and _loopback(requested[0]) and 0 < requested[1] < 2**16):
            own = requested
    return f"{scheme}://{own[0]}" + ("" if own[1] == USUAL.get(scheme) else f":{own[1]}")


def _loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def services(request: Request) -> Factory:
    """Return the services of this application."""
    return cast(Factory, request.app.state.factory)


def home(request: Request) -> str:
    """Return the URL of this broker for users: the configured one, else the origin of the connection (`found_at`)."""
    scope = request.scope
    url = services(request).settings.public_url.rstrip("/")
    return url or found_at(scope["scheme"], request.headers.get("Host", ""), scope.get("server"))


Services = Annotated[Factory, Depends(services)]
Home = Annotated[str, Depends(home)]
