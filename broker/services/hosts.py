"""To which addresses names of hosts lead: asked of the system's resolver, and remembered for a moment."""

import asyncio
import socket
import time
from collections.abc import Iterable
from ipaddress import ip_address

import structlog

from broker.services.enclosing import numeric

__all__ = ["Hosts"]

REMEMBERED = 60.0
"""Seconds."""
PATIENCE = 10.0
"""Seconds for an answer."""
MOST = 10_000
log = structlog.get_logger("broker")


class Hosts:
    """Names of hosts."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    async def addresses(self, hosts: Iterable[str]) -> dict[str, frozenset[str]]:
        """Return the numeric addresses of hosts that have names, by these as `numeric` spells them; none of unknown."""
        now = time.monotonic()
        if len(self._known) > MOST:
            self._known.clear()
        names = {name for host in hosts if _is_name(name := numeric(host))}
        unknown = [name for name in names if name not in self._known or self._known[name][0] <= now]
        for name, found in zip(unknown, await asyncio.gather(*map(_looked_up, unknown)), strict=True):
            self._known[name] = (now + REMEMBERED, found)
        return {name: self._known[name][1] for name in names if name in self._known}


async def _looked_up(name: str) -> frozenset[str]:
    try:
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        log.warning("the addresses of a host are not known", host=name, error=str(error) or type(error).__name__)
        return frozenset()
    return frozenset(str(address[0]) for *_, address in found)


def _is_name(spelled: str) -> bool:
    try:
        ip_address(spelled)
    except ValueError:
        return True
    return False
