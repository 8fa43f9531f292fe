"""A broker with a worker, two GridFTP servers with a collection each, and a user with grants to both."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest

from broker.background import worker_of
from broker.config.settings import Settings
from broker.models.callers import NewToken
from tests.broker.conftest import Broker, running
from tests.broker.worlds import Folder, Servers
from tests.support.waiting import until

TASKS = "/broker/v1/tasks"


class World(NamedTuple):
    """A broker with a worker, two servers with a collection each, and Ann, who may use them."""

    broker: Broker
    admin: httpx.AsyncClient
    ann: httpx.AsyncClient
    source: Path
    sink: Path

    def submission(self, *paths: str, **more: Any) -> dict[str, Any]:
        items = [{"source": path, "destination": f"/copy{path}"} for path in paths]
        return {"submission_id": str(uuid4()), "source": "from here", "destination": "to", "items": items, **more}

    async def over(self, number: str) -> dict[str, Any]:
        """Return the finished task."""

        async def ended() -> dict[str, Any] | None:
            task = (await self.ann.get(f"{TASKS}/{number}")).json()
            return task if task["completed_at"] is not None else None

        return await until(ended)


async def somebody(broker: Broker, subject: str, role: str = "transfer") -> httpx.AsyncClient:
    issued = await broker.factory.tokens.issue("tests", NewToken(subject=subject, role=role))
    return broker.with_headers({"Authorization": f"Bearer {issued.token}"})


async def grant(admin: httpx.AsyncClient, collection: str, subject: str, permissions: str) -> None:
    rule = {"principal_type": "identity", "principal": subject, "permissions": permissions}
    assert (await admin.post(f"/broker/v1/collections/{collection}/rules", json=rule)).status_code == 201


@pytest.fixture
async def world(servers: Servers, database: str, tmp_path: Path) -> AsyncIterator[World]:
    source, sink = Folder(servers[0], tmp_path / "source"), Folder(servers[1], tmp_path / "sink")
    async with running(Settings(database)) as broker:
        beside = [] if broker.factory.database.sqlite else [asyncio.create_task(worker_of(broker.factory).run())]
        admin = await broker.client("admin")
        await admin.put("/broker/v1/sites/LAB", json={"name": "LAB"})
        for name, server in (("from here", source), ("to", sink)):
            where = {"scheme": "ftp", "host": server.host, "port": server.port, "prefix": f"{server.root}/"}
            endpoint = {"name": name.split()[0], "site": "LAB", "write_priority": 1, **where}
            assert (await admin.put(f"/broker/v1/endpoints/{endpoint['name']}", json=endpoint)).status_code == 200
            collection = {"name": name, "endpoint": endpoint["name"]}
            assert (await admin.put(f"/broker/v1/collections/{name}", json=collection)).status_code == 200
        await grant(admin, "from here", "ann", "r")
        await grant(admin, "to", "ann", "rw")
        yield World(broker, admin, await somebody(broker, "ann"), source.root, sink.root)
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
