"""Notices to a configured webhook of finished tasks, and of deadlines that may not be kept.

They are signed as in Standard Webhooks, and sent at least once. The transaction that ends a task, or stores an event of
its deadline, also marks it for a notice. So no notice is lost if a process dies, and no task waits for the webhook. The
task's options `notify_on_*` decide whether a notice is sent.
"""

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal, NamedTuple

import httpx
import orjson
import structlog

from broker.config.settings import Hook
from broker.errors import Unavailable
from broker.models.collections import Collection
from broker.models.submissions import TaskRecord
from broker.models.tasks import Event, Task
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
SOON = 60.0
"""Pause in seconds until a notice of a deadline is sent again."""
ENDS: Mapping[str | None, Literal["canceled", "expired"]] = {"CANCELED": "canceled", "EXPIRED": "expired"}
log = structlog.get_logger("broker.notices")


class _Notice(NamedTuple):
    """A notice of the end of a task; if it is active, of the last event of its deadline, which has a number."""

    task: Task
    collections: Mapping[str, Collection]
    told: tuple[int, Event] | None

    @property
    def id(self) -> str:
        """The id, by which receivers recognise a notice that arrives twice."""
        return f"{self.task.id}-{self.told[0]}" if self.told else self.task.id

    def is_requested(self) -> bool:
        """Return whether the options of the task ask for this notice."""
        if self.task.completed_at is None:
            return self.told is not None and self.task.options.notify_on_failed
        options = self.task.options
        return options.notify_on_succeeded if self.task.status == "SUCCEEDED" else options.notify_on_failed

    def pause(self, now: float) -> float:
        """Return the seconds until the next attempt, if one at `now` fails."""
        return SOON if self.task.completed_at is None else max(FIRST, now - self.task.completed_at)

    def body(self, now: float) -> bytes:
        """Return the notice as JSON."""
        if self.told:
            event = self.told[1]
            how, at, what = event.code.lower(), event.at, f": {event.description} ({event.details})"
        else:
            how = "succeeded" if self.task.status == "SUCCEEDED" else ENDS.get(self.task.error_code, "failed")
            at, what = self.task.completed_at or now, f" {_description(self.task, how)}"
        record = TaskRecord.of(self.task, self.collections, at).model_dump(mode="json")
        return orjson.dumps(
            {
                "type": f"task.{how}",
                "timestamp": datetime.fromtimestamp(at, UTC).isoformat(),
                "data": {**record, "description": f"{self.task.label or self.task.id}{what}"},
            }
        )


class Notices:
    """The sender of notices to the hook."""

    def __init__(self, database: Database, hook: Hook) -> None:
        self._database = database
        self._hook = hook

    async def keep_sending(self) -> None:
        """Send notices of finished tasks until cancelled."""
        # a notice to this machine, which alone may lack TLS, must not go to a proxy
        async with httpx.AsyncClient(timeout=SECONDS, trust_env=self._hook.url.startswith("https:")) as client:
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
            now, notices = await self._take(due)
            await asyncio.gather(*(self._send(client, notice, now) for notice in notices))

    @retried
    async def _take(self, due: list[str]) -> tuple[float, list[_Notice]]:
        async with self._database.write() as connection:
            now = await read_clock(connection)
            tasks = await Stored(connection).take(due, now, now + TAKEN)
            numbers = {number for task in tasks for number in (task.source, task.destination) if number}
            collections = {str(each.id): each for each in await CollectionStore(connection).all(numbers)}
            told = await Stored(connection).of_deadlines([task.id for task in tasks if task.completed_at is None])
            return now, [_Notice(task, collections, told.get(task.id)) for task in tasks]

    async def _send(self, client: httpx.AsyncClient, notice: _Notice, now: float) -> None:
        """Send a notice that was claimed at `now`."""
        until = now + TAKEN
        if not notice.is_requested() or notice.pause(now) > LONGEST:
            return await self._put(notice.task.id, until, None)
        body = notice.body(now)
        try:
            async with asyncio.timeout(SECONDS):
                headers = _headers(self._hook.key, notice.id, int(time.time()), body)
                (await client.post(self._hook.url, content=body, headers=headers)).raise_for_status()
        except (httpx.HTTPError, TimeoutError) as error:
            log.warning("the webhook did not accept the notice", task=notice.task.id, error=_why(error))
            return await self._put(notice.task.id, until, notice.pause(now))
        return await self._put(notice.task.id, until, None)

    @retried
    async def _put(self, number: str, until: float, seconds: float | None) -> None:
        """Schedule the next attempt in `seconds`; None for no further attempt."""
        async with self._database.write() as connection:
            at = None if seconds is None else await read_clock(connection) + seconds
            await Stored(connection).put(number, until, at)


def _why(error: Exception) -> str:
    """Return the reason of a failure, without the webhook's URL, which may be a secret."""
    return str(error.response.status_code) if isinstance(error, httpx.HTTPStatusError) else type(error).__name__


def _description(task: Task, how: str) -> str:
    seconds = (task.completed_at or 0.0) - task.requested_at
    done = f"{task.files_transferred} files, {task.bytes_transferred} bytes, in {seconds:.1f} s"
    why = f": {task.error}" if task.error and how != "succeeded" else ""
    return f"{how}{why} ({done})"


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
