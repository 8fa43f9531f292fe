"""The process that serves: logs, signals, uvicorn."""

import gc
import logging
import sys

import structlog
import uvicorn
from structlog.typing import Processor

from broker.config import Settings
from broker.factory import Factory
from broker.main import create_app

__all__ = ["serve"]

BETWEEN_COLLECTIONS = 20_000
"""New objects that make the collector look for garbage: with Python's 700 it holds up requests for a tenth of a second,
looking through all that was imported.
"""
PATIENCE = 30
"""Seconds that requests have to end once the broker was told to."""


def serve(settings: Settings, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; requests that were begun are ended first."""
    _log()
    gc.set_threshold(BETWEEN_COLLECTIONS, 20, 50)
    factory = Factory.of(settings)
    structlog.get_logger("broker").info("starting", database=factory.database.shown, host=host, port=port)
    uvicorn.run(
        create_app(factory),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=PATIENCE,
    )


def _log() -> None:
    """One line of JSON for each event, on standard error."""
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
    )
    handler = logging.StreamHandler()
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=logging.INFO)
