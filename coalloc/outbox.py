"""What transfers achieved, on its way to the broker: told at once if that is quick, else kept and told next time."""

import asyncio
import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from coalloc.brokerclient import Broker, BrokerRefuses
from coalloc.errors import CoallocError
from coalloc.history import Transfer, default_path, source_key

__all__ = ["tell"]

log = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a user may wait for a broker, whose file is there already."""
KEPT = 1000
"""Reports that wait; the oldest go."""
LONGEST = 500
"""Characters of an error that the broker takes."""


async def tell(broker: Broker, transfers: Sequence[Transfer], bad: Sequence[tuple[str, str, str]] = ()) -> None:
    """Tell the broker, and what it was not told before, oldest first. Never fails, never takes long.

    Where no history is kept, nothing waits either.

    :param bad: replicas with wrong bytes: dataset, URL, and what is wrong
    """
    folder = _folder()
    new = [_observation(broker, each) for each in transfers if each.outcome != "unused" and each.end > each.start]
    try:
        if new and folder:
            _keep(folder, broker, new)
            new = []
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for dataset, url, reason in bad:
                    await broker.mark_bad(dataset, url, reason[:LONGEST])
                await _send(broker, folder, new)
    except (OSError, CoallocError) as error:
        log.info("the broker was not told: %s", error)


async def _send(broker: Broker, folder: Path | None, new: Sequence[dict[str, Any]]) -> None:
    for path in _waiting(folder):
        report = json.loads(path.read_text())
        if report["broker"] != broker.access.url:
            continue
        try:
            await broker.report(report["observations"])
        except BrokerRefuses as error:
            log.warning("the broker took no report of earlier transfers: %s", error.message)
        path.unlink(missing_ok=True)
    if new:
        await broker.report(new)


def _folder() -> Path | None:
    history = default_path()
    return history and history.with_name("outbox")


def _waiting(folder: Path | None) -> list[Path]:
    return sorted(folder.glob("*.json")) if folder else []


def _keep(folder: Path, broker: Broker, observations: Sequence[dict[str, Any]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{observations[0]['ended']:017.3f}-{uuid4().hex}"
    temporary = folder / f"{name}.new"
    temporary.write_text(json.dumps({"broker": broker.access.url, "observations": observations}))
    temporary.rename(folder / f"{name}.json")
    for old in _waiting(folder)[:-KEPT]:
        old.unlink(missing_ok=True)


def _observation(broker: Broker, transfer: Transfer) -> dict[str, Any]:
    error = "".join(char if char.isprintable() else " " for char in transfer.error or "")
    return {
        "id": uuid4().hex,
        "source": source_key(transfer.url),
        **({"sink": broker.access.site} if broker.access.site else {}),
        "started": transfer.start,
        "ended": transfer.end,
        "bytes": transfer.bytes,
        "busy_seconds": transfer.busy_seconds,
        "setup_seconds": transfer.setup_seconds,
        "ranges": transfer.ranges,
        "streams": max(1, transfer.streams),
        "outcome": transfer.outcome,
        "error": error[:LONGEST] or None,
    }
