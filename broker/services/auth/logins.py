"""Logins of users in browsers, valid for half a day.

A browser's session at the broker's own pages is valid as long as its login.
"""

import time

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import Unauthenticated
from broker.models.callers import Caller, Role
from broker.models.oauth import PAGES, TokenSource, UserLogin
from broker.services.auth.attempts import Attempts
from broker.services.auth.grants import exchanged, used_by
from broker.services.auth.tokens import AccessTokens, hashed, new_secret
from broker.storage.database import Database, retried
from broker.storage.grants import GrantStore
from broker.storage.subjects import IdentityStore
from broker.storage.tokens import TokenStore

__all__ = ["LASTS", "BrowserSessions", "Logins"]

LASTS = 43_200.0
"""Seconds that a login is valid."""
WORD = 30 * 86_400.0
"""Seconds after a login at an identity provider until all tokens that derive from it expire."""
GUESSES = 10
"""Most failed attempts by one address in a minute."""


class Logins:
    """Logins with a browser."""

    def __init__(self, database: Database, tokens: AccessTokens) -> None:
        self._database = database
        self._tokens = tokens
        self._guesses = Attempts(GUESSES, 60)

    @retried
    async def by_token(self, token: str, address: str) -> str:
        """Log in the user of a token that an admin issued; return the secret of the login.

        :raises Unauthenticated: when the token is invalid; the message is the same for every reason
        :raises TooManyRequests: when the address had too many failures
        """
        now = time.time()
        async with self._database.write() as connection:
            issued = await GrantStore(connection).login("token", hashed(token), now)
            if issued:
                return await _begun(connection, TokenSource(issued.caller, None, issued.id, now, issued.limit_at), now)
            known = await TokenStore(connection).known(hashed(token))
        self._guesses.failed(address, hashed(token) if known else "")
        raise Unauthenticated("the token is unknown, expired or revoked", "ask an admin for one")

    @retried
    async def by_provider(self, caller: Caller, name: str | None, email: str | None) -> str:
        """Log in a user from the identity provider; return the secret of the login.

        Earlier logins of the user with another role are revoked, with all tokens that derive from them.
        """
        now = time.time()
        async with self._database.write() as connection:
            await IdentityStore(connection).seen(caller.subject, now, name, email)
            await _end(connection, caller.subject, now, but=caller.role)
            source = TokenSource(caller, login_at=now, limit_at=now + WORD)
            secret = await _begun(connection, source, now)
        self._tokens.clear_cache()
        return secret

    @retried
    async def end_all(self, subject: str) -> None:
        """Revoke all logins of a user through the identity provider, and all tokens that derive from them."""
        async with self._database.write() as connection:
            await _end(connection, subject, time.time())
        self._tokens.clear_cache()

    async def current(self, secret: str) -> UserLogin | None:
        """Return the login with this secret; None if it is not valid."""
        async with self._database.read() as connection:
            return await GrantStore(connection).login("login", hashed(secret), time.time())

    @retried
    async def end(self, secret: str) -> None:
        """Revoke a login, with its sessions at the broker's own pages and the tokens of clients that derive from it."""
        now = time.time()
        async with self._database.write() as connection:
            stored = GrantStore(connection)
            if login := await stored.login("login", hashed(secret), now):
                await stored.revoke(login.id, now)
        self._tokens.clear_cache()


async def _end(connection: AsyncConnection, subject: str, now: float, but: Role | None = None) -> None:
    """Revoke the logins of a user through an identity provider, except those with the role `but`."""
    stored = GrantStore(connection)
    for number in await stored.provided(subject, but):
        await stored.revoke(number, now)


async def _begun(connection: AsyncConnection, source: TokenSource, now: float) -> str:
    secret = new_secret()
    await GrantStore(connection).add("login", hashed(secret), source, now, source.until(LASTS, now))
    await TokenStore(connection).note(now, source.caller.subject, "log in", f"as {source.caller.role}")
    return secret


class BrowserSessions:
    """Sessions of browsers."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @retried
    async def begin(self, code: str, redirect_uri: str, verifier: str) -> tuple[str, float]:
        """Begin a session with a code of a login; return its secret, and the seconds until it expires with the login.

        :raises Unauthenticated: when the code is invalid, or belongs to another client or redirect URI
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
        raise Unauthenticated("the login was not completed in time, or not in this browser", "start again at /reports")

    async def current(self, secret: str) -> Caller | None:
        """Return the user of a session; None if it is not valid."""
        async with self._database.read() as connection:
            return await GrantStore(connection).session(hashed(secret), time.time())

    @retried
    async def end(self, secret: str) -> None:
        """End a session."""
        async with self._database.write() as connection:
            await GrantStore(connection).end_session(hashed(secret), time.time())
