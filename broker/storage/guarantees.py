"""The ledger of promised finish times in the database."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, case, delete, exists, func, literal, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from broker.models.guarantees import Guarantee, GuaranteedShare, NewGuarantee, Outcome, PromisedLink
from broker.schema.guarantees import OPEN, guarantee_shares, guarantees
from broker.schema.tasks import tasks
from coalloc.guarantees.finish_admission import PromisedShare

__all__ = ["GuaranteeStore"]

OF = guarantees.c
LATE = case((and_(OF.expires_at.is_not(None), OF.expires_at < OF.deadline), "expired"), else_="broken")
"""The outcome of a promise of a client whose end was not reported in time."""

SHARES = (
    select(OF.id, OF.sink, OF.server, OF.deadline, OF.task_id, *guarantee_shares.c)
    .select_from(guarantees.join(guarantee_shares).outerjoin(tasks, tasks.c.id == OF.task_id))
    .where(OPEN)
)


class GuaranteeStore:
    """Promises in the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection
        self._sqlite = connection.dialect.name == "sqlite"

    async def alone(self) -> None:
        """Block all other transactions that change the ledger until this one ends.

        Without this, two of them could promise the same share of a link.
        """
        if not self._sqlite:
            await self._connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('coget guarantees'))"))

    async def settle(self, now: float) -> None:
        """Close the promises whose time is over, and those of silent clients and of ended tasks."""
        over = or_(OF.expires_at <= now, OF.deadline <= now)
        lapsed = update(guarantees).where(OPEN, OF.task_id.is_(None), over)
        await self._connection.execute(lapsed.values(outcome=LATE))
        of_task = select(tasks.c.id).where(tasks.c.id == OF.task_id, tasks.c.status != "ACTIVE")
        ended = update(guarantees).where(OPEN, OF.task_id.is_not(None), of_task.correlate(guarantees).exists())
        task = select(_outcome_of_task()).where(tasks.c.id == OF.task_id).correlate(guarantees).scalar_subquery()
        at = select(tasks.c.completed_at).where(tasks.c.id == OF.task_id).correlate(guarantees).scalar_subquery()
        await self._connection.execute(ended.values(outcome=task, ended_at=at))

    async def promised(self, sources: Collection[str], sink: str, now: float) -> list[PromisedLink]:
        """Return the open shares of all links from these sources, and of all links to this sink."""
        ours = or_(guarantee_shares.c.source.in_(sorted(sources)), OF.sink == sink)
        return [_link(row) for row in await self._connection.execute(SHARES.where(ours, _state(now) == "open"))]

    async def running(self, now: float) -> list[tuple[str | None, PromisedLink]]:
        """Return the shares of all links that are in force now, each with the task that it is promised to, if any."""
        alive = (OF.deadline > now, guarantee_shares.c.since <= now, _state(now) == "open")
        rows = await self._connection.execute(SHARES.where(*alive))
        return [(row.task_id, _link(row)) for row in rows]

    async def count(self, owner: str) -> int:
        """Return the number of open promises of a user."""
        mine = select(func.count()).select_from(guarantees).where(OPEN, OF.owner == owner)
        return int((await self._connection.execute(mine)).scalar_one())

    async def add(self, new: NewGuarantee, shares: Mapping[str, float], since: float, most: int) -> int:
        """Add a promise with its shares by source; return its number.

        :param most: number of the owner's closed promises and refusals that are kept, the newest ones
        """
        values = {**new._asdict(), "bytes_left": new.bytes, "chance_now": new.chance}
        added = guarantees.insert().values(values).returning(OF.id)
        number = int((await self._connection.execute(added)).scalar_one())
        rows = [{"guarantee_id": number, "source": each, "rate": shares[each], "since": since} for each in shares]
        if rows:
            await self._connection.execute(guarantee_shares.insert(), rows)
        closed = select(OF.id).where(OF.owner == new.owner, OF.outcome.is_not(None))
        last = closed.order_by(OF.id.desc()).offset(most).limit(1).scalar_subquery()
        old = delete(guarantees).where(OF.owner == new.owner, OF.outcome.is_not(None), OF.id <= last)
        await self._connection.execute(old)
        return number

    async def one(self, number: int, now: float) -> Guarantee | None:
        """Return a promise; None if there is none."""
        found = await self._found([OF.id == number], 1, now)
        return found[0] if found else None

    async def requested(self, owner: str, request_id: str, now: float) -> Guarantee | None:
        """Return the promise of an earlier request; None if there is none."""
        found = await self._found([OF.owner == owner, OF.request_id == request_id], 1, now)
        return found[0] if found else None

    async def of_task(self, task: str, deadline: float, now: float) -> Guarantee | None:
        """Return the promise of a task for a deadline; None if there is none."""
        found = await self._found([OF.task_id == task, OF.deadline == deadline], 1, now)
        return found[0] if found else None

    async def still_asked(self, task: str, deadline: float) -> bool:
        """Return whether a task is under way with this deadline; it keeps both until the transaction ends."""
        mine = select(tasks.c.id).where(tasks.c.id == task, tasks.c.status == "ACTIVE", tasks.c.deadline == deadline)
        return (await self._connection.execute(mine.with_for_update(read=True))).first() is not None

    async def page(self, owner: str | None, before: int | None, limit: int, now: float) -> list[Guarantee]:
        """Return the newest promises and refusals of a user, or of all users if `owner` is None."""
        mine = [OF.owner == owner] if owner is not None else [literal(True)]
        return await self._found([*mine, *([OF.id < before] if before is not None else [])], limit, now)

    async def between(
        self, owner: str | None, sink: str | None, since: float, until: float, limit: int, now: float
    ) -> list[Guarantee]:
        """Return the newest promises and refusals of a period.

        :param owner: user whose promises to return; None for those of all users
        :param sink: the destination's site; None for all
        """
        conditions = [OF.made_at >= since, OF.made_at < until]
        if owner is not None:
            conditions.append(OF.owner == owner)
        if sink is not None:
            conditions.append(OF.sink == sink)
        return await self._found(conditions, limit, now)

    async def refused_tasks(self, numbers: Sequence[int], now: float) -> dict[int, bool]:
        """Return whether the tasks of refusals ended in time, by the number of the refusal, if they have ended.

        Tasks that were canceled, or got a promise before or afterwards, are left out.
        """
        other = guarantees.alias().c
        promised = exists().where(other.task_id == OF.task_id, or_(other.outcome.is_(None), other.outcome != "refused"))
        kept = and_(tasks.c.status == "SUCCEEDED", tasks.c.completed_at <= OF.deadline)
        over = or_(tasks.c.status != "ACTIVE", OF.deadline <= now)
        found = select(OF.id, kept.label("kept")).join(tasks).where(over, tasks.c.canceled.is_(None), ~promised)
        rows = await self._connection.execute(found.where(OF.id.in_(numbers)))
        return {row.id: bool(row.kept) for row in rows}

    async def _found(self, where: Sequence[Any], limit: int, now: float) -> list[Guarantee]:
        columns = (*guarantees.c, tasks.c.completed_at, _state(now).label("state"))
        shown = select(*columns).select_from(guarantees.outerjoin(tasks))
        shown = shown.where(*where).order_by(OF.id.desc()).limit(limit)
        rows = (await self._connection.execute(shown)).all()
        listed = select(guarantee_shares).where(guarantee_shares.c.guarantee_id.in_([row.id for row in rows]))
        shares: dict[int, list[GuaranteedShare]] = {}
        for row in await self._connection.execute(listed.order_by(guarantee_shares.c.source)):
            share = GuaranteedShare.model_construct(source=row.source, rate=row.rate, since=row.since)
            shares.setdefault(row.guarantee_id, []).append(share)
        return [_guarantee(row, shares.get(row.id, [])) for row in rows]

    async def report(self, number: int, left: int, chance: float, expires_at: float | None, scale: float) -> None:
        """Store what a client or a worker reports about an open promise.

        :param scale: factor of its shares, at most 1
        """
        values = {"bytes_left": left, "chance_now": chance, "expires_at": expires_at}
        await self._connection.execute(update(guarantees).where(OF.id == number).values(values))
        if scale < 1:
            mine = update(guarantee_shares).where(guarantee_shares.c.guarantee_id == number)
            await self._connection.execute(mine.values(rate=guarantee_shares.c.rate * scale))

    async def close(self, number: int, outcome: Outcome, now: float) -> None:
        """Close an open promise, whose shares are free from now on."""
        mine = update(guarantees).where(OPEN, OF.id == number)
        await self._connection.execute(mine.values(outcome=outcome, ended_at=now))


def _link(row: Row[Any]) -> PromisedLink:
    return PromisedLink(row.id, row.source, row.sink, row.server, PromisedShare(row.rate, row.since, row.deadline))


def _outcome_of_task() -> ColumnElement[str]:
    kept = and_(tasks.c.status == "SUCCEEDED", tasks.c.completed_at <= OF.deadline)
    return case((kept, "kept"), (tasks.c.canceled.is_not(None), "given up"), else_="broken")


def _state(now: float) -> ColumnElement[str]:
    """Return the outcome of a promise, joined with its task; if it is not closed yet, as `settle` will store it."""
    return case(
        (OF.outcome.is_not(None), OF.outcome),
        (tasks.c.status == "ACTIVE", "open"),
        (OF.task_id.is_not(None), _outcome_of_task()),
        (and_(OF.expires_at > now, OF.deadline > now), "open"),
        else_=LATE,
    )


def _guarantee(row: Row[Any], shares: list[GuaranteedShare]) -> Guarantee:
    same = {name: getattr(row, name) for name in Guarantee.model_fields if name in guarantees.c}
    changed = {"outcome": row.state, "ended_at": row.ended_at or row.completed_at, "shares": shares}
    return Guarantee.model_construct(**{**same, "by": row.deadline, "task": row.task_id, **changed})
