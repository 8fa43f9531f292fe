"""Wake-up of workers on any number of machines, through Procrastinate on PostgreSQL; one queue for each site."""

import asyncio
from collections.abc import Callable
from typing import Self

import structlog
from procrastinate import App, JobContext, PsycopgConnector
from procrastinate.exceptions import AlreadyEnqueued, ConnectorException

from broker.storage.queue import arguments

__all__ = ["Queue"]

ANY = "any"
"""The queue of work that workers of any site may do."""
AGAIN = 5.0
"""Seconds before the next attempt to listen after the database was gone."""
STALLED = 30
"""Seconds after which a job of a dead worker is given to another."""
PARTING = 3.0
"""Seconds for Procrastinate's worker to sign off from the database."""
log = structlog.get_logger("broker.worker")


class Queue:
    """A wake-up queue in a database; an async context manager.

    :param url: URL of the database, as `storage.database.addressed` makes it
    """

    def __init__(self, url: str) -> None:
        self._app = App(connector=PsycopgConnector(**arguments(url)))
        self._wake: Callable[[], None] = lambda: None
        self._ringing: set[asyncio.Task[None]] = set()
        self._woken = self._app.task(name="wake")(self._answer)
        self._app.periodic(cron="* * * * *")(self._app.task(name="stalled", pass_context=True)(_retry_stalled))

    async def __aenter__(self) -> Self:
        await self._app.open_async()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.gather(*self._ringing, return_exceptions=True)
        await self._app.close_async()

    async def _answer(self) -> None:
        self._wake()

    def ring(self, site: str) -> None:
        """Wake the workers of a site, or of any if empty, without waiting: workers also look for work themselves."""
        ringing = asyncio.create_task(self._ring(site or ANY))
        self._ringing.add(ringing)
        ringing.add_done_callback(self._ringing.discard)

    async def _ring(self, name: str) -> None:
        try:
            await self._woken.configure(queue=name, queueing_lock=f"wake {name}").defer_async()
        except AlreadyEnqueued:
            pass  # the worker that is woken by the job before finds this work, too
        except ConnectorException as error:
            log.warning("no worker could be woken", queue=name, error=str(error))

    async def listen(self, site: str, wake: Callable[[], None]) -> None:
        """Call `wake` for each wake-up until cancelled, also after the database was gone for a while."""
        self._wake = wake
        queues = [ANY, *([site] if site else []), "builtin", "default"]
        while True:
            woken = asyncio.create_task(
                self._app.run_worker_async(queues=queues, install_signal_handlers=False, delete_jobs="always")
            )
            try:
                await asyncio.shield(woken)
            except asyncio.CancelledError:
                await _ended(woken)
                raise
            except Exception as error:  # whatever the error, workers also look for work by themselves
                log.warning("this worker cannot be woken now, and polls instead", error=str(error).strip())
            await asyncio.sleep(AGAIN)


async def _ended(woken: asyncio.Task[None]) -> None:
    """End a worker of Procrastinate, which first tries to tell the database, although that may no longer answer."""
    for _ in range(2):
        woken.cancel()
        await asyncio.wait([woken], timeout=PARTING)


async def _retry_stalled(context: JobContext, timestamp: int) -> None:
    """Repeat the jobs of workers that died."""
    manager = context.app.job_manager
    for job in await manager.get_stalled_jobs(seconds_since_heartbeat=STALLED):
        await manager.retry_job(job)
