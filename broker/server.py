"""The processes of the broker: the uvicorn server, and the task worker; their logs and signals."""

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

from broker.background import WakeUps, worker_of
from broker.config.settings import Settings
from broker.factory import Factory
from broker.main import create_app
from broker.memory import few_heaps
from broker.middleware import Proxies
from coalloc.safe_text import redacted_text
from predictors.compiled import REMEDY, available

__all__ = ["serve", "work"]

PATIENCE = 30
"""Seconds that running requests may take after the broker gets a signal to stop."""
JSON = structlog.processors.JSONRenderer(lambda entry, **how: json.dumps(entry, **how).replace("\x7f", "\\u007f"))
"""A renderer of events as JSON lines in printable ASCII; all other characters are escaped."""
SWITCHED = 0.001
"""Python's thread switch interval in seconds, short because threads that parse large bodies delay responses."""
NOT_STARTED = 3
"""Exit status when the server cannot start, such as with a port in use; the same as uvicorn's."""


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM, then finish running requests within `PATIENCE` seconds."""
    _log()
    few_heaps()
    sys.setswitchinterval(SWITCHED)
    factory = Factory.of(settings)
    log = structlog.get_logger("broker")
    log.info("starting", database=factory.database.shown, host=host, port=port)
    if not available():
        log.warning("numba is not installed, so forecasts take about four times as long", remedy=REMEDY)
    config = uvicorn.Config(
        _behind(settings.proxies, create_app(factory)),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # would also trust an environment variable
        timeout_graceful_shutdown=PATIENCE,
    )
    server = UvicornServer(config, factory.watching.close)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(NOT_STARTED)


def _behind(proxies: Sequence[str], app: ASGIApp) -> ASGIApp:
    """Return the application with trusted proxies, and a log of other clients' proxy headers."""
    believing: Any = ProxyHeadersMiddleware(cast(Any, app), list(proxies))
    return Proxies(believing, proxies)


class UvicornServer(uvicorn.Server):
    """A server that calls `ending` before it waits for running requests, so that streams end at once."""

    def __init__(self, config: uvicorn.Config, ending: Callable[[], None]) -> None:
        super().__init__(config)
        self._ending = ending

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        self._ending()
        await super().shutdown(sockets)


def work(settings: Settings) -> None:
    """Carry out tasks until SIGINT or SIGTERM, then release all unfinished work items."""
    _log()
    asyncio.run(_work(settings))


async def _work(settings: Settings) -> None:
    factory = Factory.of(settings)
    log = structlog.get_logger("broker.worker")
    log.info("working", database=factory.database.shown, site=settings.site)
    worker = worker_of(factory)
    async with WakeUps(factory.database.url) as wake_ups:
        both = [asyncio.create_task(each) for each in (worker.run(), wake_ups.listen(settings.site, worker.wake))]
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: [task.cancel() for task in both])
        await asyncio.gather(*both, return_exceptions=True)
    factory.trees.close()
    await factory.database.close()
    log.info("stopped")


def _redacted(_: object, __: str, entry: EventDict) -> EventDict:
    """Return a log entry without the secrets in its URLs."""
    return {name: redacted_text(value) if isinstance(value, str) else value for name, value in entry.items()}


def _log() -> None:
    """Configure logs as JSON lines on standard error."""
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
    logging.getLogger("httpx").setLevel(logging.WARNING)  # URLs of webhooks may be secrets
