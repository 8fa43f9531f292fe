"""Tells a hook, a server of the admin's, of tasks that are over: as Standard Webhooks has it, signed, at least once.

A task is marked in the transaction that ends it, by whichever process that is, so that nothing is lost when that
process dies, and no task waits. The hook hears of what the task's own `notify_on_*` ask for.
"""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import httpx
import orjson
import structlog

from broker.config import Hook
from broker.errors import Unavailable
from broker.models.collections import Collection
from broker.models.submissions import TaskRecord
from broker.models.tasks import Task
from broker.storage.clock import read_clock
from broker.storage.collections import Collections
from broker.storage.database import Database, retried
from broker.storage.notices import Notices as Stored

__all__ = ["Notices"]

TICK = 1.0
AT_ONCE = 20
SECONDS = 10.0
"""For the hook to answer."""
TAKEN = 60.0
"""Seconds for which a task is left to the process that is about to tell of it."""
FIRST = 5.0
"""Seconds before the second try; each of those that follow comes when as much time again has passed."""
LONGEST = 86_400.0
"""Seconds after its end for which a task is told of."""
ENDS: Mapping[str | None, Literal["canceled", "expired"]] = {"CANCELED": "canceled", "EXPIRED": "expired"}
log = structlog.get_logger("broker.notices")


class Notices:
    """What the hook is told."""

    def __init__(self, database: Database, hook: Hook) -> None:
        self._database = database
        self._hook = hook

    async def keep_telling(self) -> None:
        """Tell of what is over, again and again, until cancelled."""
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            while True:
                try:
                    await self._tell_all(client)
                except Unavailable as error:
                    log.warning("the database cannot be used now", error=error.message)
                except Exception:  # else nobody would ever be told of anything again
                    log.exception("nothing can be told of tasks")
                await asyncio.sleep(TICK)

    async def _tell_all(self, client: httpx.AsyncClient) -> None:
        while True:
            async with self._database.read() as connection:  # which writes nothing where there is nothing to tell
                due = await Stored(connection).due(await read_clock(connection), AT_ONCE)
            if not due:
                return
            now, tasks, collections = await self._take(due)
            await asyncio.gather(*(self._tell(client, task, collections, now) for task in tasks))

    @retried
    async def _take(self, due: list[str]) -> tuple[float, list[Task], dict[str, Collection]]:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            tasks = await Stored(connection).take(due, now, now + TAKEN)
            numbers = {number for task in tasks for number in (task.source, task.destination) if number}
            return now, tasks, {str(each.id): each for each in await Collections(connection).all(numbers)}

    async def _tell(
        self, client: httpx.AsyncClient, task: Task, collections: Mapping[str, Collection], now: float
    ) -> None:
        age = now - (task.completed_at or 0.0)
        if not _wanted(task) or age > LONGEST:
            return await self._put(task.id, None)
        body = _notice(task, collections)
        try:
            async with asyncio.timeout(SECONDS):
                said = _headers(self._hook.key, task.id, int(time.time()), body)
                (await client.post(self._hook.url, content=body, headers=said)).raise_for_status()
        except (httpx.HTTPError, TimeoutError) as error:
            log.warning("the hook was not told", task=task.id, error=_why(error))
            return await self._put(task.id, max(FIRST, age))
        return await self._put(task.id, None)

    @retried
    async def _put(self, number: str, seconds: float | None) -> None:
        """Tell of it again in so many seconds; None: it is told."""
        async with self._database.write() as connection:
            at = None if seconds is None else await read_clock(connection) + seconds
            await Stored(connection).put(number, at)


def _why(error: Exception) -> str:
    """Without the hook's address, which may be a secret."""
    return str(error.response.status_code) if isinstance(error, httpx.HTTPStatusError) else type(error).__name__


def _wanted(task: Task) -> bool:
    """Whether its owner wants others to hear of its end."""
    return task.options.notify_on_succeeded if task.status == "SUCCEEDED" else task.options.notify_on_failed


def _notice(task: Task, collections: Mapping[str, Collection]) -> bytes:
    """What is said of a task that is over: JSON."""
    ended = task.completed_at or 0.0
    how = "succeeded" if task.status == "SUCCEEDED" else ENDS.get(task.error_code, "failed")
    record = TaskRecord.of(task, collections, ended).model_dump(mode="json")
    return orjson.dumps(
        {
            "type": f"task.{how}",
            "timestamp": datetime.fromtimestamp(ended, UTC).isoformat(),
            "data": {**record, "description": _description(task, how)},
        }
    )


def _description(task: Task, how: str) -> str:
    seconds = (task.completed_at or 0.0) - task.requested_at
    done = f"{task.files_transferred} files, {task.bytes_transferred} bytes, in {seconds:.1f} s"
    why = f": {task.error}" if task.error and how != "succeeded" else ""
    return f"{task.label or task.id} {how}{why} ({done})"


def _headers(key: bytes, number: str, at: int, body: bytes) -> dict[str, str]:
    """What tells the receiver who has sent it, and when.

    :param at: seconds since the epoch
    """
    signature = base64.b64encode(hmac.digest(key, b"%s.%d." % (number.encode(), at) + body, hashlib.sha256)).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": number,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{signature}",
    }
