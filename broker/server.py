"""The processes: one that serves, through uvicorn, and one that carries out tasks; their logs and signals."""

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from socket import socket
from typing import Any, cast

import structlog
import uvicorn
from starlette.types import ASGIApp
from structlog.typing import EventDict, Processor
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from broker.config import Settings
from broker.factory import Factory
from broker.garbage import few_heaps
from broker.main import create_app
from broker.middleware import Proxies
from broker.tasks import Queue, worker_of
from coalloc.urls import redacted_text
from predictors.compiled import REMEDY, available

__all__ = ["serve", "work"]

PATIENCE = 30
"""Seconds that requests have to end once the broker was told to."""
JSON = structlog.processors.JSONRenderer(lambda said, **how: json.dumps(said, **how).replace("\x7f", "\\u007f"))
"""One line for each event, all in it that is no printable ASCII escaped."""
SWITCHED = 0.001
"""Seconds after which a thread lets another one go on: each answer waits for some while large bodies are read."""
NOT_STARTED = 3
"""The exit status when the port is taken, or the like; uvicorn's own."""


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are ended first."""
    _log()
    few_heaps()
    sys.setswitchinterval(SWITCHED)
    factory = Factory.of(settings)
    log = structlog.get_logger("broker")
    log.info("starting", database=factory.database.shown, host=host, port=port)
    if not available():
        log.warning("numba is not installed: forecasts take some four times as long", remedy=REMEDY)
    config = uvicorn.Config(
        _behind(settings.proxies, create_app(factory)),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # it would believe a variable of the environment, too
        timeout_graceful_shutdown=PATIENCE,
    )
    server = Server(config, factory.watching.close)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)


def _behind(proxies: Sequence[str], app: ASGIApp) -> ASGIApp:
    """The application as it is behind these proxies: they are believed, and others are told of."""
    believing: Any = ProxyHeadersMiddleware(cast(Any, app), list(proxies))
    return Proxies(believing, proxies)


class Server(uvicorn.Server):
    """One that tells before it waits for the requests that it has: streams would go on for as long as it lets them."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def work(settings: Settings) -> None:
    """Carry out tasks until SIGINT or SIGTERM; what was begun is given back then."""
    _log()
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    factory = Factory.of(settings)
    log = structlog.get_logger("broker.tasks")
    log.info("working", database=factory.database.shown, site=settings.site)
    worker = worker_of(factory)
    async with Queue(factory.database.url) as queue:
        both = [asyncio.create_task(each) for each in (worker.run(), queue.listen(settings.site, worker.wake))]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: [task.cancel() for task in both])
        await asyncio.gather(*both, return_exceptions=True)
    factory.trees.close()
    await factory.database.close()
    log.info("stopped")


def _redacted(_: object, __: str, said: EventDict) -> EventDict:
    """Show URLs in what is logged without what may be a key."""
    return {name: redacted_text(value) if isinstance(value, str) else value for name, value in said.items()}


def _log() -> None:
    """One line of JSON for each event, on standard error."""
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, _redacted, JSON],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            _redacted,
            JSON,
        ],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("procrastinate").setLevel(logging.WARNING)  # it tells of each time that somebody is woken
    logging.getLogger("httpx").setLevel(logging.WARNING)  # addresses of hooks may be secrets
