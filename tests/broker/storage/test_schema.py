"""Tables: creation, upgrades, and agreement with the code."""

import asyncio
import contextlib
import itertools
import multiprocessing
import os
import signal
import sqlite3
import stat
import threading

import alembic.command
import pytest
import sqlalchemy as sa

from broker.config.settings import Settings
from broker.errors import Invalid, Unavailable
from broker.factory import Factory
from broker.models.callers import Caller
from broker.schema.tasks import tasks, work
from broker.services.auth.tokens import hashed
from broker.storage import migration
from broker.storage.database import addressed
from broker.storage.migration import check, differences, upgrade
from tests.support.effort import effort
from tests.support.filled import RENAMED, fill


def test_the_upgraded_tables_are_those_of_the_schema(empty_database):
    address = addressed(empty_database)
    assert not check(address)
    assert upgrade(address)
    assert check(address)
    assert not upgrade(address)
    differences(address)


def _run(address: str, *statements: str) -> None:
    engine = sa.create_engine(address.replace("+aiosqlite", ""))
    with engine.begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))
    engine.dispose()


def test_an_old_schema_is_refused_with_the_command_that_upgrades(empty_database):
    address = addressed(empty_database)
    upgrade(address)
    _run(address, "UPDATE alembic_version SET version_num = '0001'")
    with pytest.raises(Invalid, match=r"version 0001, and this broker needs \d{4}") as refused:
        check(address)
    assert "coget-broker upgrade" in refused.value.remedy


def test_tokens_of_the_first_version_are_good_after_an_upgrade(empty_database):
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0001")
    values = f"'{hashed('cogetb_old')}', 'ann', 'curator', 'CERN', 1.0"
    _run(address, f"INSERT INTO tokens (hash, subject, role, site, created_at) VALUES ({values})")
    assert not upgrade(address)
    differences(address)

    async def ask() -> Caller:
        factory = Factory.of(Settings(empty_database), compiled=False)
        try:
            return await factory.tokens.caller("cogetb_old")
        finally:
            await factory.database.close()

    assert asyncio.run(ask()) == Caller(subject="ann", role="curator", site="CERN")


def test_logins_at_a_provider_from_before_they_had_an_end_get_one(empty_database):
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0016")
    day = 86_400
    rows = [  # id, kind, parent, expires_at, login_at, limit_at; the first one was issued by an admin
        (1, "token", "NULL", "NULL", "NULL", "NULL"),
        (2, "login", 1, 100 * day, 1, "NULL"),
        (3, "refresh", 2, 180 * day, 1, "NULL"),
        (4, "login", "NULL", day, 1, "NULL"),
        (5, "refresh", 4, 180 * day, 1, "NULL"),
        (6, "refresh", 5, 180 * day, 1, "NULL"),
        (7, "refresh", "NULL", 180 * day, 1, "NULL"),
        (8, "refresh", "NULL", 20 * day, 1, 30 * day),
        (9, "access", "NULL", 180 * day, "NULL", "NULL"),
    ]
    for number, kind, *rest in rows:
        values = f"{number}, 'h{number}', 'ann', 'admin', '', 1.0, '{kind}', {', '.join(map(str, rest))}"
        columns = "id, hash, subject, role, site, created_at, kind, parent_id, expires_at, login_at, limit_at"
        _run(address, f"INSERT INTO tokens ({columns}) VALUES ({values})")
    upgrade(address)
    engine = sa.create_engine(address.replace("+aiosqlite", ""))
    with engine.connect() as connection:
        found = connection.execute(sa.text("SELECT id, expires_at, limit_at FROM tokens ORDER BY id")).all()
    engine.dispose()
    word = 30 * day + 1
    assert [tuple(row) for row in found] == [
        (1, None, None),
        (2, 100 * day, None),
        (3, 180 * day, None),
        (4, day, word),
        (5, word, word),
        (6, word, word),
        (7, word, word),
        (8, 20 * day, 30 * day),
        (9, 180 * day, None),
    ]


def test_work_that_was_left_in_tasks_that_are_over_is_ended(empty_database):
    """A listing added it while the others ended."""
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0018")
    texts = {"owner": "ann", "kind": "TRANSFER", "source": "s", "options": "{}", "queue": "", "waits": ""}
    more = {"nice": 0, "deadline": 9.0, "requested_at": 1.0, "completed_at": 5.0, "canceled_by_admin": False}
    of_work = {"kind": "copy", "phase": 0, "source": "/a", "destination": "/a", "size": 1, "details": "[]"}
    begun = {"attempt": 0, "lost": 0, "not_before": 0.0}
    engine = sa.create_engine(address.replace("+aiosqlite", ""))
    with engine.begin() as connection:
        columns = sa.inspect(connection).get_columns("tasks")
        counts = {each["name"]: 0 for each in columns if isinstance(each["type"], sa.BigInteger)}
        counts.pop("token_id", None)
        for number, status in (("over", "FAILED"), ("active", "ACTIVE")):
            values = {**counts, **texts, **more, "id": number, "submission_id": number, "status": status, "total": 2}
            connection.execute(sa.insert(tasks).values(values))
            for state in ("pending", "leased", "succeeded"):
                row = {**of_work, **begun, "task_id": number, "key": state, "state": state}
                connection.execute(sa.insert(work).values(row))
    upgrade(address)
    with engine.begin() as connection:
        rows = connection.execute(
            sa.select(work.c.task_id, work.c.key, work.c.state, work.c.leases).order_by(work.c.id)
        )
        assert [tuple(row) for row in rows] == [
            ("over", "pending", "canceled", 0),
            ("over", "leased", "canceled", 0),
            ("over", "succeeded", "succeeded", 0),
            ("active", "pending", "pending", 0),
            ("active", "leased", "leased", 0),
            ("active", "succeeded", "succeeded", 0),
        ]
        asked = sa.select(tasks.c.id, tasks.c.canceled_work, tasks.c.unswept).order_by(tasks.c.id)
        assert [tuple(row) for row in connection.execute(asked)] == [("active", 0, None), ("over", 2, 5.0)]
    engine.dispose()


def test_renamed_tables_keep_their_rows(empty_database):
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0022")
        fill(connection, ["ann", "bob"], "token")
        before = {new: _rows(connection, old) for old, new in RENAMED.items()}
    upgrade(address)
    differences(address)
    with migration._connected(address) as connection:
        assert {new: _rows(connection, new) for new in before} == before
        inspected = sa.inspect(connection)
        assert not RENAMED.keys() & set(inspected.get_table_names())
        keys = [inspected.get_pk_constraint(new)["name"] for new in before]
        keys += [each["name"] for new in before for each in inspected.get_foreign_keys(new)]
    assert all(each.partition("_")[2].startswith(tuple(before)) for each in keys)
    assert len(keys) == 5


def test_numbers_of_deleted_tokens_are_not_used_again_after_an_upgrade(empty_database):
    """Tasks and timers may have a higher number than all tokens that are left."""
    address = addressed(empty_database)
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0032")
        fill(connection, ["ann", "bob"], "login")
        connection.execute(sa.text("UPDATE tokens SET parent_id = 1000 WHERE id = 1001"))
        connection.execute(sa.text("UPDATE tasks SET token_id = 1234"))
        connection.execute(sa.text("INSERT INTO codes SELECT id, '', '', '', false FROM tokens"))
        kept = {name: _rows(connection, name) for name in ("tokens", "lanes", "codes", "tasks")}
    upgrade(address)
    differences(address)
    with migration._connected(address) as connection:
        assert {name: _rows(connection, name) for name in kept} == kept
        inspected = sa.inspect(connection)
        referred = {each["referred_table"]: each["options"] for each in inspected.get_foreign_keys("tokens")}
        assert referred == {"tokens": {"ondelete": "SET NULL"}, "clients": {"ondelete": "CASCADE"}}
        assert [each["name"] for each in inspected.get_unique_constraints("tokens")] == ["uq_tokens_hash"]
        if connection.dialect.name == "sqlite":
            values = "'h', 'ann', 'admin', '', 1.0"
            added = f"INSERT INTO tokens (hash, subject, role, site, created_at) VALUES ({values}) RETURNING id, kind"
            assert tuple(connection.execute(sa.text(added)).one()) == (1235, "token")
            columns = "worker, task_id, owner, source, destination, opened_at"
            lane = f"INSERT INTO lanes ({columns}) SELECT id, '', '', '', '', 0 FROM workers LIMIT 1 RETURNING id"
            connection.execute(sa.text("DELETE FROM lanes"))
            assert connection.execute(sa.text(lane)).scalar_one() == 1002
            assert not connection.execute(sa.text("PRAGMA foreign_key_check")).all()


def _rows(connection: sa.Connection, table: str) -> set[tuple[object, ...]]:
    rows = {tuple(row) for row in connection.execute(sa.text(f"SELECT * FROM {table}"))}
    assert len(rows) == 2
    return rows


def _of_first_version(address: str, *tokens: str) -> None:
    with migration._connected(address) as connection:
        alembic.command.upgrade(migration._config(connection), "0001")
    for token in tokens:
        _run(
            address,
            f"INSERT INTO tokens (hash, subject, role, site, created_at) VALUES ('{token}', 'ann', 'admin', '', 1.0)",
        )


def _upgrade_and_die(address: str, at: int) -> bool:
    """Upgrade in a process that is killed before its statement number `at`; return whether it got that far."""

    def child() -> None:
        left = itertools.count(at, -1)

        def look(*_: object) -> None:
            if not next(left):
                os.kill(os.getpid(), signal.SIGKILL)

        sa.event.listen(sa.Engine, "before_cursor_execute", look)
        upgrade(address)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0


@pytest.mark.long
def test_an_upgrade_that_is_killed_at_any_statement_goes_on(tmp_path):
    """Each attempt dies a few statements later than the one before, on the same file."""
    path = tmp_path / "broker.sqlite"
    address = addressed(f"sqlite:///{path}")
    _of_first_version(address, "one", "two")
    steps = itertools.count(1, effort(19, 3))
    while _upgrade_and_die(address, next(steps)):
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            assert connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar() == "0001"
        engine.dispose()
    assert next(steps) > 50
    assert check(address)
    differences(address)
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        assert set(connection.execute(sa.text("SELECT hash FROM tokens")).scalars()) == {"one", "two"}
    engine.dispose()


def test_the_older_file_is_kept_beside_for_its_owner_only(tmp_path):
    path = tmp_path / "broker.sqlite"
    address = addressed(f"sqlite:///{path}")
    _of_first_version(address, "one")
    upgrade(address)
    (kept,) = tmp_path.glob("broker.sqlite.before-*")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    with contextlib.closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)
        assert connection.execute("SELECT hash FROM tokens").fetchall() == [("one",)]
    assert not upgrade(address)
    assert list(tmp_path.glob("broker.sqlite.before-*")) == [kept]


def test_the_second_of_two_concurrent_upgrades_changes_nothing(tmp_path, monkeypatch):
    """The second upgrade starts between the version check and the copy; the copy still holds the old version."""
    path = tmp_path / "broker.sqlite"
    address = addressed(f"sqlite:///{path}")
    _of_first_version(address, "one")
    keep_copy, others = migration._keep_copy, []

    def interrupted(url):
        if not others:
            others.append(threading.Thread(target=upgrade, args=(url,)))
            others[0].start()
        keep_copy(url)

    monkeypatch.setattr(migration, "_keep_copy", interrupted)
    upgrade(address)
    others[0].join()
    assert check(address)
    (kept,) = tmp_path.glob("broker.sqlite.before-*")
    with contextlib.closing(sqlite3.connect(kept)) as connection:
        assert connection.execute("SELECT version_num FROM alembic_version").fetchone() == ("0001",)


def test_a_schema_of_a_newer_broker_is_left_alone(empty_database):
    address = addressed(empty_database)
    upgrade(address)
    _run(address, "UPDATE alembic_version SET version_num = 'later'")
    for use in (check, upgrade):
        with pytest.raises(Invalid, match="version later, which this broker does not know"):
            use(address)


def test_a_database_of_another_program_is_left_alone(empty_database):
    address = addressed(empty_database)
    _run(address, "CREATE TABLE theirs (x INTEGER)")
    for use in (check, upgrade):
        with pytest.raises(Invalid, match="has tables, but not the broker's"):
            use(address)


@pytest.mark.parametrize("url", ["mysql://x/y", "broker.sqlite", "", "://"])
def test_an_address_that_is_no_database_is_refused(url):
    with pytest.raises(Invalid, match=r"is not a database that the broker knows|is not a URL"):
        addressed(url)


def test_a_database_that_cannot_be_opened_is_reported(tmp_path):
    with pytest.raises(Unavailable, match="cannot open the database"):
        check(addressed(f"sqlite:///{tmp_path}/none/x.sqlite"))
    with pytest.raises(Unavailable, match="cannot open the database"):
        check(addressed(f"postgresql://nobody@/none?host={tmp_path}"))
