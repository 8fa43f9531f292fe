"""Programs that are given tokens: made by an admin, or registered by themselves, as the globus CLI does."""

import hmac
import time
from uuid import UUID, uuid4

from broker.errors import Conflict, Invalid, NotFound, Refused
from broker.models.access import Role
from broker.models.oauth import PAGES, Client
from broker.models.subjects import refusal
from broker.services.access import Access, hashed, new_secret
from broker.services.attempts import Attempts
from broker.storage.access import Records
from broker.storage.clients import Clients as Stored
from broker.storage.database import Database, retried
from broker.storage.grants import Grants
from broker.storage.identities import Identities

__all__ = ["Clients"]

DAY = 86_400.0
REGISTRATIONS = 60
"""That one address may ask for in an hour."""
GUESSES = 20
"""That one address may make in a minute."""


class Clients:
    """Who may ask for tokens."""

    def __init__(self, database: Database, access: Access) -> None:
        self._database = database
        self._access = access
        self._registrations = Attempts(REGISTRATIONS, 3600)
        self._guesses = Attempts(GUESSES, 60)

    @retried
    async def make(self, by: str, name: str, role: Role | None) -> tuple[Client, str | None]:
        """A new one, and its secret, which is shown only now.

        :param role: what it may do for itself; None: nothing, it is a program in which people log in, and has no secret
        :raises Invalid: when no client may be called so
        """
        if role is not None and (why := refusal(name)):
            raise Invalid(f"{name} {why}", "choose another name")
        now, secret = time.time(), None if role is None else new_secret()
        client = Client(str(uuid4()), name, secret is None, role, by, now)
        async with self._database.write() as connection:
            await Stored(connection).add(client, secret and hashed(secret))
            await Records(connection).note(now, by, "make client", f"{client.id} {name}, {role or 'public'}")
            if role is not None:
                await Identities(connection).seen(name, now)
        return client, secret

    @retried
    async def register(self, name: str, address: str) -> tuple[Client, str]:
        """One that nobody vouches for: it may do nothing but let people log in.

        :raises TooManyRequests: when this address asks too often
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
        """One that was not revoked."""
        async with self._database.read() as connection:
            found = await Stored(connection).get(_canonical(number))
        return found and found[0]

    async def authenticated(self, number: str, secret: str | None, address: str) -> Client:
        """The client that says who it is, and proves it where it has a secret.

        :raises Refused: invalid_client, the same whatever is wrong
        :raises TooManyRequests: when this address was wrong too often
        """
        async with self._database.read() as connection:
            found = await Stored(connection).get(_canonical(number))
        client, kept = found or (None, None)
        right = secret is None if kept is None else hmac.compare_digest(kept, hashed(secret or ""))
        if client is None or not right or client.id == PAGES:  # the pages ask for nothing from outside
            self._guesses.failed(address, client.id if client else "")
            raise Refused("invalid_client", "the client is unknown, or its secret is wrong", 401)
        return client

    async def made(self) -> list[Client]:
        """Those that an admin made, by name."""
        async with self._database.read() as connection:
            return await Stored(connection).made()

    @retried
    async def revoke(self, by: str, number: str) -> None:
        """End a client, and all that it was given. :raises NotFound: :raises Conflict: when it is our own pages"""
        now = time.time()
        if _canonical(number) == PAGES:
            raise Conflict("the broker's own pages are no client to be revoked", "revoke logins: GET /broker/v1/tokens")
        async with self._database.write() as connection:
            if not await Stored(connection).revoke(_canonical(number), now):
                raise NotFound(f"there is no client {number[:100]}", "run: coget-broker client list")
            await Grants(connection).revoke_client(_canonical(number), now)
            await Records(connection).note(now, by, "revoke client", number)
        self._access.doubt()


def _canonical(number: str) -> str:
    """The id as it is kept; nobody's, if it is no UUID."""
    try:
        return str(UUID(number))
    except ValueError:
        return ""
