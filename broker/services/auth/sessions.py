"""Sessions of browsers on the broker's own pages; a session is valid as long as the login from which it came."""

import time

from broker.errors import Unauthenticated
from broker.models.access import Caller
from broker.models.oauth import PAGES, TokenSource
from broker.services.auth.access import hashed, new_secret
from broker.services.auth.grants import exchanged, used_by
from broker.services.auth.logins import LASTS
from broker.storage.database import Database, retried
from broker.storage.grants import GrantStore

__all__ = ["BrowserSessions"]


class BrowserSessions:
    """Sessions of browsers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    async def begin(self, code: str, redirect_uri: str, verifier: str) -> tuple[str, float]:
        """Begin a session with a code of a login; return its secret, and the seconds that it is valid, like the login.

        :raises Unauthenticated: when the code is not valid, or was granted for something else
        """
        now, secret = time.time(), new_secret()
        async with self._database.write() as connection:
            stored = await used_by(PAGES, connection, now)
            if found := await exchanged(stored, PAGES, code, redirect_uri, verifier, now):
                grant, _ = found
                source = TokenSource(grant.caller, PAGES, grant.id, grant.login_at, grant.limit_at)
                until = source.until(LASTS, grant.login_at or now)
                await stored.add("session", hashed(secret), source, now, until)
                return secret, until - now
        raise Unauthenticated("the login was not completed in time, or not in this browser", "begin again at /reports")

    async def current(self, secret: str) -> Caller | None:
        """Return the user of a session; None if it is not valid."""
        async with self._database.read() as connection:
            return await GrantStore(connection).session(hashed(secret), time.time())

    @retried
    async def end(self, secret: str) -> None:
        """End a session."""
        async with self._database.write() as connection:
            await GrantStore(connection).end_session(hashed(secret), time.time())
