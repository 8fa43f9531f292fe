"""Wake-up of workers on any machine by PostgreSQL's NOTIFY.

A notification only hints that there is work. Workers also poll, so a lost one delays work by a few seconds.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import structlog
from psycopg import AsyncConnection, Error
from sqlalchemy import make_url

__all__ = ["WakeUps"]

CHANNEL = "coget_work"
AGAIN = 5.0
"""Seconds before the next attempt to listen after the connection broke."""
PATIENCE = 5.0
"""Timeout in seconds for sending a notification."""
REACHED: dict[str, Any] = {
    "autocommit": True,
    "connect_timeout": 10,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""Options of the connection, with which a lost connection is noticed within a minute."""
log = structlog.get_logger("broker.worker")


class WakeUps:
    """Notifications through a database; an async context manager.

    :param url: URL of the database, as returned by `storage.database.addressed`
    """

    def __init__(self, url: str) -> None:
        self._address = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
        self._connection: AsyncConnection[Any] | None = None
        self._due: set[str] = set()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._sender:
            await self._sender
        if self._connection:
            await self._connection.close()

    def ring(self, site: str) -> None:
        """Notify the workers of a site, or of all sites if it is empty, in the background."""
        self._due.add(site)
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._due:
            site = self._due.pop()
            try:
                async with asyncio.timeout(PATIENCE):
                    if self._connection is None or self._connection.closed:
                        self._connection = await AsyncConnection.connect(self._address, **REACHED)
                    await self._connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, site))
            except (Error, TimeoutError) as error:
                log.warning("failed to wake workers", site=site, error=str(error).strip() or "it took too long")
                if self._connection:
                    await self._connection.close()

    async def listen(self, site: str, wake: Callable[[], None]) -> None:
        """Call `wake` for each notification until cancelled; connect again when the connection breaks."""
        while True:
            try:
                async with await AsyncConnection.connect(self._address, **REACHED) as connection:
                    await connection.execute(f"LISTEN {CHANNEL}")
                    wake()  # earlier notifications were missed
                    async for notification in connection.notifies():
                        if notification.payload in ("", site):
                            wake()
            except Error as error:
                log.warning("this worker cannot get notifications now, and polls instead", error=str(error).strip())
            await asyncio.sleep(AGAIN)
