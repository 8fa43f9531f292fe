"""Grants to clients: codes, and tokens in exchange for a code, a refresh token, or the client's own secret.

Each token records its parent. A code, or a refresh token of a public client, is valid once. A second use shows that it
was stolen; then all tokens that derive from it are revoked (RFC 6749, 4.1.2; RFC 9700, 4.14).

Two programs may share a refresh token, and an answer may be lost. So for `GRACE` seconds, a used refresh token gives
the same successor again, until the successor is used, and at most `MOST_AGAIN` times. As there is never a second
successor, a thief gets no chain of tokens of its own: the later use of an older token is noticed. Nor can it follow the
owner's chain: a token that was given again has no such grace itself, so its second use revokes all of them.
"""

import base64
import hashlib
import hmac
import time
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import OAuthRefused, Unauthenticated
from broker.models.callers import Caller
from broker.models.oauth import Client, Code, Consent, Grant, ResourceServerToken, TokenSource, granted
from broker.services.auth.tokens import AccessTokens, hashed, new_secret
from broker.storage.database import Database, retried
from broker.storage.grants import GrantStore as Stored
from broker.storage.oauth import ClientStore
from broker.storage.subjects import IdentityStore

__all__ = ["ACCESS", "Grants", "IssuedTokens", "exchanged", "used_by"]

CODE = 300.0
"""Seconds that a code is valid, long enough for users who have to paste it."""
ACCESS = 172_800.0
REFRESH = 180 * 86_400.0
"""Seconds that a refresh token is valid after its last use."""
GRACE = 30.0
"""Seconds after the first use of a public client's refresh token in which it gives the same successor again."""
MOST_AGAIN = 8
"""Most times that a successor is given again, each time with another access token."""
RETENTION = 86_400.0
"""Seconds for which expired tokens remain in the database."""


class IssuedTokens(NamedTuple):
    """New tokens, one for each resource server, and their owner.

    :param code: code for which they were exchanged, if any
    """

    caller: Caller
    tokens: tuple[ResourceServerToken, ...]
    login_at: float | None = None
    code: Code | None = None


class Grants:
    """Codes and tokens for clients."""

    def __init__(self, database: Database, tokens: AccessTokens) -> None:
        self._database = database
        self._tokens = tokens
        self._forgot_at = 0.0

    @retried
    async def code(self, login: str, code: Code) -> str:
        """Issue a code for the user of a login. :raises Unauthenticated: when the login is no longer valid"""
        now, secret = time.time(), new_secret()
        async with self._database.write() as connection:
            stored = await used_by(code.client, connection, now)
            who = await stored.login("login", hashed(login), now)
            if who is None:
                raise Unauthenticated("the login has ended", "log in again")
            source = TokenSource(who.caller, code.client, who.id, who.login_at, who.limit_at)
            number = await stored.add("code", hashed(secret), source, now, source.until(CODE, now), None, code.scopes)
            await stored.bind(number, code)
        return secret

    @retried
    async def redeem(self, client: Client, secret: str, redirect_uri: str, verifier: str) -> IssuedTokens:
        """Exchange a code for tokens; the code is then spent. :raises OAuthRefused: invalid_grant"""
        now = time.time()
        await self._forget(now)
        async with self._database.write() as connection:
            given = await _redeemed(
                await used_by(client.id, connection, now), client, secret, redirect_uri, verifier, now
            )
        if given is None:
            self._tokens.clear_cache()
            raise OAuthRefused("invalid_grant", "the code is unknown, expired or used, or belongs to another request")
        return given

    @retried
    async def refresh(self, client: Client, secret: str, scope: str) -> IssuedTokens:
        """Exchange a refresh token for a new access token.

        :param scope: requested scopes, out of the refresh token's; if empty, all of them
        :raises OAuthRefused: invalid_grant, invalid_scope
        """
        now = time.time()
        await self._forget(now)
        async with self._database.write() as connection:
            given = await _refreshed(await used_by(client.id, connection, now), client, secret, scope, now)
        if given is None:
            self._tokens.clear_cache()
            raise OAuthRefused("invalid_grant", "the refresh token is unknown, expired or revoked, or another client's")
        return given

    @retried
    async def own(self, client: Client, scope: str) -> IssuedTokens:
        """Grant tokens to the client itself. :raises OAuthRefused: unauthorized_client, invalid_scope"""
        if client.role is None:
            why = f"the client {client.name} has no role: it can get tokens only for users who log in"
            raise OAuthRefused("unauthorized_client", why)
        now = time.time()
        source = TokenSource(Caller(subject=client.name, role=client.role), client.id)
        await self._forget(now)
        async with self._database.write() as connection:
            stored = await used_by(client.id, connection, now)
            await IdentityStore(connection).seen(client.name, now)
            scopes_by_server = granted(scope).items()
            tokens = [await _issue(stored, source, server, scopes, now) for server, scopes in scopes_by_server]
        return IssuedTokens(source.caller, tuple(tokens))

    async def given(self, secret: str) -> Grant | None:
        """Return a valid token of a client; None if the secret is not one."""
        now = time.time()
        async with self._database.read() as connection:
            grant, revoked = await Stored(connection).given(hashed(secret)) or (None, True)
        return None if grant is None or revoked or _over(grant, now) else grant

    async def consents(self, subject: str, client: str | None) -> list[Consent]:
        """Return the consents of a user, one for each client and scope.

        :param client: client whose consents are returned; None for all clients
        """
        async with self._database.read() as connection:
            given = await Stored(connection).of(subject, client, time.time())
        found: dict[tuple[str, str], Consent] = {}
        for each in given:
            for scope in each.scopes:
                first = Consent(each.client, scope, each.created_at, each.created_at, False, False)
                known = found.get((each.client, scope), first)
                found[each.client, scope] = known._replace(
                    used_at=each.created_at,
                    refreshed=known.refreshed or each.kind == "refresh",
                    interactive=known.interactive or each.login_at is not None,
                )
        return list(found.values())

    @retried
    async def revoke(self, secret: str) -> None:
        """Revoke a client's token, and all tokens that derive from it, for anyone who has its secret."""
        now = time.time()
        async with self._database.write() as connection:
            stored = Stored(connection)
            if found := await stored.given(hashed(secret)):
                await stored.revoke(await _first(stored, found[0]), now)
        self._tokens.clear_cache()

    @retried
    async def _forget(self, now: float) -> None:
        if now > self._forgot_at + RETENTION:
            async with self._database.write() as connection:
                await Stored(connection).forget(now - RETENTION)
            self._forgot_at = now


async def used_by(client: str, connection: AsyncConnection, now: float) -> Stored:
    """Return the stored grants; record the client's use, which blocks its revocation until the transaction ends.

    :raises OAuthRefused: invalid_client, when the client was revoked
    """
    if not await ClientStore(connection).used(client, now):
        raise OAuthRefused("invalid_client", "the client was revoked", 401)
    return Stored(connection)


async def exchanged(
    stored: Stored, client: str, secret: str, redirect_uri: str, verifier: str, now: float
) -> tuple[Grant, Code] | None:
    """Spend a code of a client, and return it; None if it is invalid. A second use revokes the tokens of the first."""
    found = await stored.bound(hashed(secret), client)
    if found is None:
        return None
    grant, code = found
    if not await stored.spend(grant.id, now):
        await stored.revoke(grant.id, now)
        return None
    return (grant, code) if code.redirect_uri == redirect_uri and _proven(code, verifier) else None


async def _redeemed(
    stored: Stored, client: Client, secret: str, redirect_uri: str, verifier: str, now: float
) -> IssuedTokens | None:
    found = await exchanged(stored, client.id, secret, redirect_uri, verifier, now)
    if found is None:
        return None
    grant, code = found
    source = TokenSource(grant.caller, client.id, grant.id, grant.login_at, grant.limit_at)
    tokens = [
        await _issue(stored, source, server, scopes, now, offline=code.offline)
        for server, scopes in granted(" ".join(code.scopes)).items()
    ]
    return IssuedTokens(grant.caller, tuple(tokens), grant.login_at, code)


async def _refreshed(stored: Stored, client: Client, secret: str, scope: str, now: float) -> IssuedTokens | None:
    grant, revoked = await stored.given(hashed(secret)) or (None, True)
    if grant is None or grant.kind != "refresh" or grant.client != client.id:
        return None
    if revoked and (again := await _successor(stored, grant, secret, now)):
        return await _given_again(stored, *again, scope, now)
    if revoked or _over(grant, now):
        await stored.revoke(await _first(stored, grant), now)
        return None
    scopes = _fewer(grant.scopes, scope)
    source = TokenSource(grant.caller, client.id, grant.id, grant.login_at, grant.limit_at)
    if client.public:  # a public client cannot prove its identity, so its refresh tokens are replaced at each use
        await stored.spend(grant.id, now)
    else:
        await stored.prolong(grant.id, source.until(REFRESH, now))
    answer = await _issue(stored, source, str(grant.server), scopes, now, offline=client.public)
    if answer.refresh_token:
        await stored.keep_successor(grant.id, _sealed(secret, answer.refresh_token.encode()).hex())
    return IssuedTokens(grant.caller, (answer._replace(refresh_token=answer.refresh_token or secret),), grant.login_at)


async def _successor(stored: Stored, grant: Grant, secret: str, now: float) -> tuple[str, Grant] | None:
    """Return the refresh token that replaced a used one within `GRACE`, if it is valid and may be given again."""
    sealed, again = await stored.successor(grant.id, now - GRACE)
    if again or not sealed:
        return None
    token = _sealed(secret, bytes.fromhex(sealed)).decode()
    later, used = await stored.given(hashed(token)) or (None, True)
    if later is None or used or _over(later, now) or await stored.give_again(later.id) > MOST_AGAIN:
        return None
    return token, later


async def _given_again(stored: Stored, token: str, later: Grant, scope: str, now: float) -> IssuedTokens:
    """Grant another access token together with a refresh token that was given before."""
    source = TokenSource(later.caller, later.client, later.id, later.login_at, later.limit_at)
    answer = await _issue(stored, source, str(later.server), _fewer(later.scopes, scope), now)
    return IssuedTokens(later.caller, (answer._replace(refresh_token=token),), later.login_at)


def _sealed(secret: str, token: bytes) -> bytes:
    """Encrypt or decrypt a token. The key is the token that it replaces, of which the database has only a hash.

    >>> _sealed("old", _sealed("old", b"new")), _sealed("other", _sealed("old", b"new")) == b"new"
    (b'new', False)
    """
    pad = hashlib.shake_256(b"successor of " + secret.encode(errors="surrogatepass")).digest(len(token))
    return bytes(one ^ other for one, other in zip(token, pad, strict=True))


async def _issue(
    stored: Stored, source: TokenSource, server: str, scopes: tuple[str, ...], now: float, offline: bool = False
) -> ResourceServerToken:
    """Grant an access token for a resource server; if `offline`, with a new refresh token as its parent."""
    access, refresh = new_secret(), new_secret() if offline else None
    if refresh:
        until = source.until(REFRESH, now)
        number = await stored.add("refresh", hashed(refresh), source, now, until, server, scopes)
        source = source._replace(parent=number)
    until = source.until(ACCESS, now)
    await stored.add("access", hashed(access), source, now, until, server, scopes)
    return ResourceServerToken(server, scopes, access, int(until - now), refresh)


async def _first(stored: Stored, grant: Grant) -> int:
    """Return the number of the token to revoke: for a refresh token that replaced others, the first of them."""
    return await stored.first(grant.id) if grant.kind == "refresh" else grant.id


def _over(grant: Grant, now: float) -> bool:
    return grant.expires_at is not None and grant.expires_at <= now


def _fewer(known: tuple[str, ...], scope: str) -> tuple[str, ...]:
    requested = tuple(word for words in granted(scope).values() for word in words) if scope.strip() else known
    if not set(requested) <= set(known):
        raise OAuthRefused("invalid_scope", "the refresh token does not have all these scopes")
    return requested


def _proven(code: Code, verifier: str) -> bool:
    """Return whether the verifier matches the code's challenge (RFC 7636, 4.6)."""
    if code.challenge is None:
        return not verifier
    digest = hashlib.sha256(verifier.encode(errors="replace")).digest()
    return hmac.compare_digest(base64.urlsafe_b64encode(digest).rstrip(b"=").decode(), code.challenge)
