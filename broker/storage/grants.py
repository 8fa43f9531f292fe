"""Tokens that derive from other tokens: logins, codes, refresh and access tokens, and browser sessions."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, or_, select, true, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.callers import Caller, Role
from broker.models.oauth import Code, Grant, Kind, TokenSource, UserLogin
from broker.schema.access import codes, locks, tokens
from broker.schema.tasks import tasks
from broker.schema.timers import timers

__all__ = ["GrantStore", "good"]

GIVEN = ("refresh", "access")
AGAIN = "+"
"""A mark in `successor`, before the encrypted token, for each time that this token itself was given again."""


UNLOCKED = tokens.c.subject.not_in(select(locks.c.subject))


def good(now: float) -> ColumnElement[bool]:
    """Return the condition for valid tokens: neither revoked nor expired, and of a subject that is not locked."""
    lasts = or_(tokens.c.expires_at.is_(None), tokens.c.expires_at > now)
    return and_(tokens.c.revoked_at.is_(None), lasts, UNLOCKED)


class GrantStore:
    """Tokens that derive from other tokens, in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def add(
        self,
        kind: Kind,
        hashed: str,
        source: TokenSource,
        now: float,
        expires_at: float,
        server: str | None = None,
        scopes: Sequence[str] = (),
    ) -> int:
        """Add a token by its hash; return its number."""
        values = {
            **source.caller.model_dump(),
            "hash": hashed,
            "created_at": now,
            "expires_at": expires_at,
            "kind": kind,
            "parent_id": source.parent,
            "client_id": source.client,
            "server": server,
            "scopes": " ".join(scopes),
            "login_at": source.login_at,
            "limit_at": source.limit_at,
        }
        rows = await self._connection.execute(tokens.insert().values(values).returning(tokens.c.id))
        return int(rows.scalar_one())

    async def bind(self, number: int, code: Code) -> None:
        """Store the OAuth parameters of a token of kind `code`."""
        values = {
            "token_id": number,
            "redirect_uri": code.redirect_uri,
            "challenge": code.challenge,
            "nonce": code.nonce,
            "offline": code.offline,
        }
        await self._connection.execute(insert(codes).values(values))

    async def login(self, kind: Kind, hashed: str, now: float) -> UserLogin | None:
        """Return the login or issued token with this hash if it is valid, and lock it until the transaction ends."""
        query = select(tokens).where(tokens.c.hash == hashed, tokens.c.kind == kind, good(now)).with_for_update()
        row = (await self._connection.execute(query)).one_or_none()
        if row is None:
            return None
        return UserLogin(row.id, _caller(row), row.login_at or now, row.expires_at if kind == "token" else row.limit_at)

    async def provided(self, subject: str, but: Role | None) -> list[int]:
        """Return the numbers of a user's unrevoked logins through the identity provider, except with the role `but`."""
        theirs = and_(tokens.c.kind == "login", tokens.c.subject == subject, tokens.c.parent_id.is_(None))
        other = true() if but is None else tokens.c.role != but
        query = select(tokens.c.id).where(theirs, tokens.c.revoked_at.is_(None), other)
        return list((await self._connection.execute(query)).scalars())

    async def bound(self, hashed: str, client: str) -> tuple[Grant, Code] | None:
        """Return a client's code, valid or not."""
        joined = (
            select(tokens, codes).join(codes).where(tokens.c.hash == hashed, tokens.c.client_id == client, UNLOCKED)
        )
        row = (await self._connection.execute(joined)).one_or_none()
        if row is None:
            return None
        scopes = tuple(row.scopes.split())
        return _grant(row), Code(client, row.redirect_uri, scopes, row.challenge, row.nonce, row.offline)

    async def given(self, hashed: str) -> tuple[Grant, bool] | None:
        """Return a client's refresh or access token, and whether it was revoked; lock it until the transaction ends."""
        query = select(tokens).where(tokens.c.hash == hashed, tokens.c.kind.in_(GIVEN), UNLOCKED).with_for_update()
        row = (await self._connection.execute(query)).one_or_none()
        return row and (_grant(row), row.revoked_at is not None)

    async def of(self, subject: str, client: str | None, now: float) -> list[Grant]:
        """Return the valid tokens of one client, or of all clients, for a subject, the oldest first."""
        chosen = [tokens.c.subject == subject, tokens.c.kind.in_(GIVEN), good(now)]
        chosen += [tokens.c.client_id == client] if client else []
        query = select(tokens).where(*chosen).order_by(tokens.c.id)
        return [_grant(row) for row in await self._connection.execute(query)]

    async def spend(self, number: int, now: float) -> bool:
        """Revoke this token, but not its descendants; return whether it was valid."""
        done = await self._connection.execute(
            update(tokens).where(tokens.c.id == number, good(now)).values(revoked_at=now)
        )
        return bool(done.rowcount)

    async def keep_successor(self, number: int, sealed: str) -> None:
        """Store the encrypted refresh token that replaces this one."""
        marked = func.coalesce(tokens.c.successor, "") + sealed
        await self._connection.execute(update(tokens).where(tokens.c.id == number).values(successor=marked))

    async def successor(self, number: int, since: float) -> tuple[str, bool]:
        """Return the encrypted successor of a token, and whether the token itself was given again.

        :return: an empty successor if the token was not spent at or after `since`
        """
        query = select(tokens.c.successor).where(tokens.c.id == number, tokens.c.revoked_at >= since)
        found = (await self._connection.execute(query)).scalar() or ""
        return found.lstrip(AGAIN), found.startswith(AGAIN)

    async def give_again(self, number: int) -> int:
        """Mark an unspent token as given again; return how often it was, including this time."""
        marked = func.coalesce(tokens.c.successor, "") + AGAIN
        changed = update(tokens).where(tokens.c.id == number).values(successor=marked)
        return len((await self._connection.execute(changed.returning(tokens.c.successor))).scalar_one())

    async def prolong(self, number: int, expires_at: float) -> None:
        """Set the expiry time of a token."""
        await self._connection.execute(update(tokens).where(tokens.c.id == number).values(expires_at=expires_at))

    async def session(self, hashed: str, now: float) -> Caller | None:
        """Return the caller of a browser session; None if it is invalid."""
        query = select(tokens).where(tokens.c.hash == hashed, tokens.c.kind == "session", good(now))
        row = (await self._connection.execute(query)).one_or_none()
        return None if row is None else _caller(row)

    async def end_session(self, hashed: str, now: float) -> None:
        """Revoke a browser session."""
        await self._end(and_(tokens.c.hash == hashed, tokens.c.kind == "session"), now)

    async def revoke(self, number: int, now: float) -> None:
        """Revoke a token and its descendants, including any that are added while the statement waits for a lock."""
        while await self._end(_family(number), now):
            pass

    async def first(self, number: int) -> int:
        """Return the number of the first token in a chain of refresh tokens that replaced each other."""
        while True:
            above = select(tokens.c.parent_id).where(tokens.c.id == number)
            query = select(tokens.c.id).where(tokens.c.id.in_(above), tokens.c.kind == "refresh")
            earlier = (await self._connection.execute(query)).scalar()
            if earlier is None:
                return number
            number = int(earlier)

    async def revoke_client(self, client: str, now: float) -> None:
        """Revoke all tokens of this client."""
        await self._end(tokens.c.client_id == client, now)

    async def _end(self, which: ColumnElement[bool], now: float) -> bool:
        """Revoke tokens; return whether any was revoked.

        The rows are returned and counted, because SQLite has no row count for statements with a CTE.
        """
        ended = update(tokens).where(which, tokens.c.revoked_at.is_(None)).values(revoked_at=now)
        return bool((await self._connection.execute(ended.returning(tokens.c.id))).all())

    async def forget(self, before: float) -> None:
        """Delete tokens without children that expired before a time, except those that admins issued, and those in use.

        Active tasks and timers that have not ended use theirs: once it were deleted, it could not be revoked any more.
        Successors of tokens that were spent before this time are deleted, too.
        """
        spent = and_(tokens.c.successor.is_not(None), tokens.c.revoked_at < before)
        await self._connection.execute(update(tokens).where(spent).values(successor=None))
        child = tokens.alias("child")
        childless = ~select(child.c.id).where(child.c.parent_id == tokens.c.id).exists()
        of_timer = select(timers.c.id).where(timers.c.token_id == tokens.c.id, timers.c.next_run.is_not(None)).exists()
        of_task = select(tasks.c.id).where(tasks.c.token_id == tokens.c.id, tasks.c.status == "ACTIVE").exists()
        old = and_(tokens.c.kind != "token", tokens.c.expires_at < before)
        await self._connection.execute(delete(tokens).where(old, childless, ~of_timer, ~of_task))


def _family(number: int) -> ColumnElement[bool]:
    """Return the condition for a token and all its descendants."""
    family = select(tokens.c.id).where(tokens.c.id == number).cte("family", recursive=True)
    family = family.union_all(select(tokens.c.id).where(tokens.c.parent_id == family.c.id))
    return tokens.c.id.in_(select(family.c.id))


def _caller(row: Any) -> Caller:
    return Caller.model_construct(subject=row.subject, role=row.role, site=row.site)


def _grant(row: Any) -> Grant:
    return Grant(
        row.id,
        row.kind,
        _caller(row),
        row.client_id,
        row.server,
        tuple(row.scopes.split()),
        row.created_at,
        row.expires_at,
        row.login_at,
        row.limit_at,
    )
