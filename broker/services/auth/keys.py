"""The broker's signing keys, which it creates, stores in the database, and publishes at /jwk.json.

Keys are read from the database for each signature, so that no process signs with a replaced key. Signatures are rare:
only logins need them.
"""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from broker.storage.database import Database, retried
from broker.storage.oauth import KeyStore as Stored
from broker.storage.oauth import SigningKey

__all__ = ["ALGORITHM", "SigningKeys"]

ALGORITHM = "RS256"
"""The only algorithm that globus-sdk supports."""
BITS = 2048
SHOWN = 7 * 86_400.0
"""Seconds for which a replaced key is published, longer than its signatures are valid."""


class SigningKeys:
    """The broker's keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a signed JWT with these claims."""
        key = await self._newest()
        return jwt.encode(dict(claims), key.private, ALGORITHM, {"kid": key.id})

    async def read(self, token: str, audience: str) -> dict[str, Any]:
        """Return the claims of a JWT that the broker signed for an audience.

        :raises jwt.PyJWTError: when it is expired, for another audience, or not signed by the broker
        """
        known = {key.id: key for key in await self._all()}
        key = known.get(str(jwt.get_unverified_header(token).get("kid")))
        if key is None:
            raise jwt.InvalidTokenError("signed by another key")
        return jwt.decode(token, _public(key), [ALGORITHM], audience=audience, options={"require": ["exp", "aud"]})

    async def shown(self) -> dict[str, Any]:
        """Return the public keys as in RFC 7517, the newest first, because globus-sdk uses only the first."""
        await self._newest()
        return {"keys": [_shown(key) for key in await self._all()]}

    @retried
    async def rotate(self) -> SigningKey:
        """Create a new key, with which the broker signs from now on; return it."""
        now, key = time.time(), _made()
        async with self._database.write() as connection:
            stored = Stored(connection)
            newest = next(iter(await stored.all()), None)
            if newest and newest.created_at < now - SHOWN:  # the older keys were replaced more than SHOWN seconds ago
                await stored.forget(newest.created_at)
            await stored.add(key)
        return key

    async def _newest(self) -> SigningKey:
        known = await self._all()
        return known[0] if known else await self.rotate()

    async def _all(self) -> list[SigningKey]:
        async with self._database.read() as connection:
            return await Stored(connection).all()


def _made() -> SigningKey:
    private = rsa.generate_private_key(65537, BITS)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return SigningKey(secrets.token_hex(8), text.decode(), time.time())


def _public(key: SigningKey) -> rsa.RSAPublicKey:
    private = serialization.load_pem_private_key(key.private.encode(), None)
    assert isinstance(private, rsa.RSAPrivateKey)
    return private.public_key()


def _shown(key: SigningKey) -> dict[str, Any]:
    shown = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_public(key)))
    return {**shown, "kid": key.id, "use": "sig", "alg": ALGORITHM}
