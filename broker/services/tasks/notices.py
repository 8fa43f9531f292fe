"""Notices of finished tasks to a configured webhook, signed as in Standard Webhooks, and sent at least once.

The transaction that ends a task also marks it for a notice. So no notice is lost if a process dies, and no task waits
for the webhook. The task's options `notify_on_*` decide whether a notice is sent.
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

from broker.config.settings import Hook
from broker.errors import Unavailable
from broker.models.collections import Collection
from broker.models.submissions import TaskRecord
from broker.models.tasks import Task
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, retried
from broker.storage.dialects import read_clock
from broker.storage.ended_tasks import NoticeStore as Stored

__all__ = ["Notices"]

TICK = 1.0
AT_ONCE = 20
SECONDS = 10.0
"""Timeout of the webhook in seconds."""
TAKEN = 60.0
"""Seconds for which a process reserves a task while it sends the notice."""
FIRST = 5.0
"""Shortest pause between attempts in seconds; a later pause is as long as the time since the end of the task."""
LONGEST = 86_400.0
"""Seconds after the end of a task until its notice is given up."""
ENDS: Mapping[str | None, Literal["canceled", "expired"]] = {"CANCELED": "canceled", "EXPIRED": "expired"}
log = structlog.get_logger("broker.notices")


class Notices:
    """The sender of notices to the hook."""

    def __init__(self, database: Database, hook: Hook) -> None:
        self._database = database
        self._hook = hook

    async def keep_sending(self) -> None:
        """Send notices of finished tasks until cancelled."""
        async with httpx.AsyncClient(timeout=SECONDS) as client:
            while True:
                try:
                    await self._send_due(client)
                except Unavailable as error:
                    log.warning("the database cannot be used now", error=error.message)
                except Exception:  # otherwise an error would stop the loop silently
                    log.exception("failed to notify the webhook of finished tasks; trying again")
                await asyncio.sleep(TICK)

    async def _send_due(self, client: httpx.AsyncClient) -> None:
        while True:
            async with self._database.read() as connection:  # a read transaction, since usually no notice is due
                due = await Stored(connection).due(await read_clock(connection), AT_ONCE)
            if not due:
                return
            now, tasks, collections = await self._take(due)
            await asyncio.gather(*(self._send(client, task, collections, now) for task in tasks))

    @retried
    async def _take(self, due: list[str]) -> tuple[float, list[Task], dict[str, Collection]]:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            tasks = await Stored(connection).take(due, now, now + TAKEN)
            numbers = {number for task in tasks for number in (task.source, task.destination) if number}
            return now, tasks, {str(each.id): each for each in await CollectionStore(connection).all(numbers)}

    async def _send(
        self, client: httpx.AsyncClient, task: Task, collections: Mapping[str, Collection], now: float
    ) -> None:
        age = now - (task.completed_at or 0.0)
        if not _is_requested(task) or age > LONGEST:
            return await self._put(task.id, None)
        body = _notice(task, collections)
        try:
            async with asyncio.timeout(SECONDS):
                headers = _headers(self._hook.key, task.id, int(time.time()), body)
                (await client.post(self._hook.url, content=body, headers=headers)).raise_for_status()
        except (httpx.HTTPError, TimeoutError) as error:
            log.warning("the webhook did not accept the notice", task=task.id, error=_why(error))
            return await self._put(task.id, max(FIRST, age))
        return await self._put(task.id, None)

    @retried
    async def _put(self, number: str, seconds: float | None) -> None:
        """Schedule the next attempt in `seconds`; None for no further attempt."""
        async with self._database.write() as connection:
            at = None if seconds is None else await read_clock(connection) + seconds
            await Stored(connection).put(number, at)


def _why(error: Exception) -> str:
    """Return the reason of a failure, without the webhook's URL, which may be a secret."""
    return str(error.response.status_code) if isinstance(error, httpx.HTTPStatusError) else type(error).__name__


def _is_requested(task: Task) -> bool:
    """Return whether the options of a task ask for a notice of its end."""
    return task.options.notify_on_succeeded if task.status == "SUCCEEDED" else task.options.notify_on_failed


def _notice(task: Task, collections: Mapping[str, Collection]) -> bytes:
    """Return the notice of a finished task, as JSON."""
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
    """Return the headers of a notice, with a signature of its id, time and body.

    :param at: seconds since the epoch
    """
    signature = base64.b64encode(hmac.digest(key, b"%s.%d." % (number.encode(), at) + body, hashlib.sha256)).decode()
    return {
        "Content-Type": "application/json",
        "webhook-id": number,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{signature}",
    }
