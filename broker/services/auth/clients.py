"""OAuth2 clients: programs that get tokens. Admins create them, or they register themselves, like the globus CLI."""

import hmac
import time
from uuid import UUID, uuid4

from broker.errors import Conflict, Invalid, NotFound, OAuthRefused
from broker.models.callers import Role
from broker.models.oauth import PAGES, Client
from broker.models.subjects import refusal
from broker.services.auth.attempts import Attempts
from broker.services.auth.tokens import AccessTokens, hashed, new_secret
from broker.storage.database import Database, retried
from broker.storage.grants import GrantStore
from broker.storage.oauth import ClientStore as Stored
from broker.storage.subjects import IdentityStore
from broker.storage.tokens import TokenStore

__all__ = ["Clients"]

DAY = 86_400.0
REGISTRATIONS = 60
"""Most registrations by one address in an hour."""
GUESSES = 20
"""Most failed authentications by one address in a minute."""


class Clients:
    """The programs that may request tokens."""

    def __init__(self, database: Database, tokens: AccessTokens) -> None:
        self._database = database
        self._tokens = tokens
        self._registrations = Attempts(REGISTRATIONS, 3600)
        self._guesses = Attempts(GUESSES, 60)

    @retried
    async def make(self, by: str, name: str, role: Role | None) -> tuple[Client, str | None]:
        """Create a client; return it with its secret, which is shown only once.

        :param by: admin that creates it
        :param role: role of the program itself; None if it acts only for users who log in, and has no secret
        :raises Invalid: when the name is not allowed
        """
        if role is not None and (why := refusal(name)):
            raise Invalid(f"{name} {why}", "choose another name")
        now, secret = time.time(), None if role is None else new_secret()
        client = Client(str(uuid4()), name, secret is None, role, by, now)
        async with self._database.write() as connection:
            await Stored(connection).add(client, secret and hashed(secret))
            await TokenStore(connection).note(now, by, "make client", f"{client.id} {name}, {role or 'public'}")
            if role is not None:
                await IdentityStore(connection).seen(name, now)
        return client, secret

    @retried
    async def register(self, name: str, address: str) -> tuple[Client, str]:
        """Register a client at its own request; return it with its secret. It can act only for users who log in.

        :raises TooManyRequests: when this address registers too many clients
        """
        self._registrations.check(address)
        now, secret = time.time(), new_secret()
        client = Client(str(uuid4()), name, False, None, None, now)
        async with self._database.write() as connection:
            clients = Stored(connection)
            await clients.forget(now - DAY)
            await clients.add(client, hashed(secret))
        self._registrations.count(address)
        return client, secret

    async def known(self, number: str) -> Client | None:
        """Return the client with this id; None if it does not exist, or was revoked."""
        async with self._database.read() as connection:
            found = await Stored(connection).get(_canonical(number))
        return found and found[0]

    async def authenticated(self, number: str, secret: str | None, address: str) -> Client:
        """Authenticate a client by its id, and by its secret if it has one; return the client.

        :raises OAuthRefused: invalid_client; the message is the same for every reason
        :raises TooManyRequests: when the address had too many failures
        """
        async with self._database.read() as connection:
            found = await Stored(connection).get(_canonical(number))
        client, secret_hash = found or (None, None)
        right = secret is None if secret_hash is None else hmac.compare_digest(secret_hash, hashed(secret or ""))
        if client is None or not right or client.id == PAGES:  # the broker's own pages never authenticate here
            self._guesses.failed(address, client.id if client else "")
            raise OAuthRefused("invalid_client", "the client is unknown, or its secret is wrong", 401)
        return client

    async def service(self, number: str, refresh_token: str) -> Client | None:
        """Return the service whose secret was sent as a refresh token; None if it is no service's secret.

        Programs that know only refresh tokens, such as Rucio, use a service in this way, without a login that ends.
        """
        async with self._database.read() as connection:
            found = await Stored(connection).get(_canonical(number))
        client, secret_hash = found or (None, None)
        if client is None or client.role is None or secret_hash is None:
            return None
        return client if hmac.compare_digest(secret_hash, hashed(refresh_token)) else None

    async def made(self) -> list[Client]:
        """Return the clients that admins created, by name."""
        async with self._database.read() as connection:
            return await Stored(connection).made()

    @retried
    async def revoke(self, by: str, number: str) -> None:
        """Revoke a client, and all its tokens.

        :raises NotFound: when there is no such client
        :raises Conflict: when it is the client of the broker's own pages
        """
        now = time.time()
        if _canonical(number) == PAGES:
            raise Conflict(
                "the client of the broker's own pages cannot be revoked", "revoke logins: GET /broker/v1/tokens"
            )
        async with self._database.write() as connection:
            if not await Stored(connection).revoke(_canonical(number), now):
                raise NotFound(f"there is no client {number[:100]}", "run: coget-broker client list")
            await GrantStore(connection).revoke_client(_canonical(number), now)
            await TokenStore(connection).note(now, by, "revoke client", number)
        self._tokens.clear_cache()


def _canonical(number: str) -> str:
    """Return a UUID in its stored form; an empty string, which is no client's id, for other text."""
    try:
        return str(UUID(number))
    except ValueError:
        return ""
