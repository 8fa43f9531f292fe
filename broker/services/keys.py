"""What the broker signs: made by itself, kept in the database, shown at /jwk.json.

A signature is asked for when somebody logs in, which is rare: so keys are read each time, and no process ever signs
with one that another has put aside.
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
from broker.storage.keys import Key
from broker.storage.keys import Keys as Stored

__all__ = ["ALGORITHM", "Keys"]

ALGORITHM = "RS256"
"""The only one for which globus-sdk can read keys."""
BITS = 2048
SHOWN = 7 * 86_400.0
"""Seconds for which a key is shown after it was put aside; nothing that it signed lasts as long."""


class Keys:
    """The broker's keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def sign(self, claims: Mapping[str, Any]) -> str:
        """A JWT of these claims."""
        key = await self._newest()
        return jwt.encode(dict(claims), key.private, ALGORITHM, {"kid": key.id})

    async def read(self, token: str, audience: str) -> dict[str, Any]:
        """What we have signed for this audience. :raises jwt.PyJWTError: when it is not that"""
        known = {key.id: key for key in await self._all()}
        key = known.get(str(jwt.get_unverified_header(token).get("kid")))
        if key is None:
            raise jwt.InvalidTokenError("signed by somebody else")
        return jwt.decode(token, _public(key), [ALGORITHM], audience=audience, options={"require": ["exp", "aud"]})

    async def shown(self) -> dict[str, Any]:
        """The public halves, as RFC 7517 writes them, the newest first: globus-sdk looks at no other."""
        await self._newest()
        return {"keys": [_shown(key) for key in await self._all()]}

    @retried
    async def rotate(self) -> Key:
        """From now on sign with a new key."""
        now, key = time.time(), _made()
        async with self._database.write() as connection:
            stored = Stored(connection)
            newest = next(iter(await stored.all()), None)
            if newest and newest.created_at < now - SHOWN:  # when it was made, those before it were put aside
                await stored.forget(newest.created_at)
            await stored.add(key)
        return key

    async def _newest(self) -> Key:
        known = await self._all()
        return known[0] if known else await self.rotate()

    async def _all(self) -> list[Key]:
        async with self._database.read() as connection:
            return await Stored(connection).all()


def _made() -> Key:
    private = rsa.generate_private_key(65537, BITS)
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Key(secrets.token_hex(8), text.decode(), time.time())


def _public(key: Key) -> rsa.RSAPublicKey:
    private = serialization.load_pem_private_key(key.private.encode(), None)
    assert isinstance(private, rsa.RSAPrivateKey)
    return private.public_key()


def _shown(key: Key) -> dict[str, Any]:
    shown = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_public(key)))
    return {**shown, "kid": key.id, "use": "sig", "alg": ALGORITHM}
