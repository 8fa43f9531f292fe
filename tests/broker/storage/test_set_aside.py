"""Transfers with wrong rates from older brokers: the upgrade keeps them visible, without effect on forecasts."""

import time

import alembic.command
import pytest
import sqlalchemy as sa

from broker.config.settings import Settings
from broker.services.forecasting import link_forecasters
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.migration import differences, upgrade
from tests.broker.conftest import running

NOW = time.time()
MB = 1_000_000
ROWS = [  # key, bytes, busy_seconds, seconds, why it is wrong
    ("task.0a-1.1.1.0", 200 * MB, 0.001, 5.0, "its busy time was not measured"),
    ("task.0a-1.2.1.0", 200 * MB, 0.0009999275207519531, 0.002, "its busy time was not measured"),
    ("task.0a-1.3.1.0", 200 * MB, 4.0, 5.0, None),
    ("task.0a-1.4.1.0", 1000, 0.001, 5.0, None),  # too small for a rate
    ("task.0a-1.5.1", 200 * MB, None, 5.0, None),  # a copy between two servers
    ("download.7", 2 * MB, 0.001, 0.1, None),  # a client at the same machine
    ("download.8", 6000 * MB, 0.001, 9.0, "no interface is as fast"),
    ("log-9", 6000 * MB, None, 0.002, "no interface is as fast"),
]


def of_before(database: str) -> None:
    """Tables of the previous version, with those rows of one pair."""
    address = addressed(database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0018")
        if connection.dialect.name == "postgresql":
            span = f"FOR VALUES FROM (0) TO ({NOW + 1e6})"
            connection.execute(sa.text(f"CREATE TABLE observations_y2000m01 PARTITION OF observations {span}"))
        connection.execute(
            sa.text(
                "INSERT INTO pairs (id, source, sink, direction, observations, newest_id, newest_end) "
                f"VALUES (1, 'ftp://a.example', 'CERN', 'read', {len(ROWS)}, {len(ROWS)}, {NOW})"
            )
        )
        for i, (key, size, busy, seconds, _) in enumerate(ROWS):
            ended = NOW - 1000 + i
            connection.execute(
                sa.text("INSERT INTO observation_keys (subject, key, ended) VALUES ('ann', :key, :ended)"),
                {"key": key, "ended": ended},
            )
            connection.execute(
                sa.text(
                    "INSERT INTO observations (id, ended, started, pair_id, bytes, busy_seconds, ranges, streams, "
                    "concurrency, file_class, outcome, subject) "
                    "VALUES (:id, :ended, :started, 1, :bytes, :busy, 1, 1, 0, '', 'ok', 'ann')"
                ),
                {"id": i + 1, "ended": ended, "started": ended - seconds, "bytes": size, "busy": busy},
            )
        connection.execute(
            sa.text("INSERT INTO voices (pair_id, subject, first_id, newest_id) VALUES (1, 'ann', 1, :newest)"),
            {"newest": len(ROWS)},
        )


@pytest.mark.parametrize("empty_database", ["sqlite", "postgresql"], indirect=True)
async def test_transfers_set_aside_are_shown_and_not_learnt(empty_database, monkeypatch):
    monkeypatch.setattr(link_forecasters, "PATIENCE", 600.0)
    monkeypatch.setattr("broker.main.followers_of", lambda factory: [])
    of_before(empty_database)
    assert not upgrade(addressed(empty_database))
    differences(addressed(empty_database))
    wrong = {i + 1: why for i, (*_, why) in enumerate(ROWS) if why}
    async with running(Settings(empty_database)) as broker:
        admin = await broker.client("admin")
        listed = (await admin.get("/broker/v1/transfers")).json()["transfers"]
        assert {each["id"]: each["set_aside"] for each in listed if each["set_aside"]} == wrong
        asked = {"set_aside": True}
        aside = (await admin.get("/broker/v1/transfers", params=asked)).json()["transfers"]
        assert {each["id"] for each in aside} == set(wrong)
        rest = (await admin.get("/broker/v1/transfers", params={"set_aside": False})).json()["transfers"]
        assert {each["id"] for each in rest} == set(range(1, len(ROWS) + 1)) - set(wrong)
        await broker.settled()
        asked = {"source": "ftp://a.example", "sink": "CERN", "size": 200 * MB}
        forecast = (await admin.get("/broker/v1/forecasts", params=asked)).json()
        assert 1 <= forecast["observations"] <= 3
        assert forecast["rate"]["p90"] <= 2000 * MB
        noted = (await admin.get("/broker/v1/audit")).json()
        assert "set transfers aside" in str(noted)


@pytest.mark.parametrize("empty_database", ["sqlite", "postgresql"], indirect=True)
def test_an_upgrade_that_fails_half_way_leaves_all_as_it_was(empty_database, monkeypatch):
    of_before(empty_database)
    address = addressed(empty_database)
    engine = sa.create_engine(address.replace("+aiosqlite", ""))

    def breaks(connection, cursor, statement, *more):
        if statement.startswith("UPDATE observations") and "coalesce" in statement:
            raise RuntimeError

    sa.event.listen(sa.Engine, "before_cursor_execute", breaks)
    try:
        with pytest.raises(RuntimeError):
            upgrade(address)
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", breaks)
    with engine.connect() as connection:
        assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "0018"
        assert "set_aside" not in {each["name"] for each in sa.inspect(connection).get_columns("observations")}
    engine.dispose()
    upgrade(address)
    differences(address)
