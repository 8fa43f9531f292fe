"""IP addresses of hosts, from the system's resolver, with a short-lived cache."""

import asyncio
import socket
import time
from collections.abc import Iterable

import structlog

from broker.services.catalogue.enclosing import is_address, numeric

__all__ = ["Hosts"]

REMEMBERED = 60.0
"""Seconds for which addresses are cached."""
AGAIN = 5.0
"""Seconds after a failed lookup until the name is looked up again."""
PATIENCE = 10.0
"""Timeout of a lookup in seconds."""
MOST = 10_000
log = structlog.get_logger("broker")


class Hosts:
    """A cache of the IP addresses of hosts."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, tuple[str, ...]]] = {}

    async def addresses(self, hosts: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """Return the IP addresses of hosts by name, as `numeric` spells it; hosts that are addresses are left out.

        If a lookup fails, the last known addresses are returned; a host without known addresses is left out.
        """
        now = time.monotonic()
        if len(self._known) > MOST:
            self._known.clear()
        names = {name for host in hosts if not is_address(name := numeric(host))}
        known = {name: self._known.get(name, (0.0, ())) for name in names}  # others may clear the cache meanwhile
        unknown = [name for name, (until, _) in known.items() if until <= now]
        for name, found in zip(unknown, await asyncio.gather(*map(_looked_up, unknown)), strict=True):
            last = self._known.get(name, known[name])[1]
            self._known[name] = known[name] = (now + REMEMBERED, found) if found else (now + AGAIN, last)
        return {name: found for name, (_, found) in known.items() if found}


async def _looked_up(name: str) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(PATIENCE):
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        log.warning("failed to look up a host", host=name, error=str(error) or type(error).__name__)
        return ()
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))
