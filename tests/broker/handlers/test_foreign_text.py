"""Text from servers and users in a broker's events, logs and commands: escaped, on one line."""

import json
import sqlite3
import sys
import time
from pathlib import Path

import pytest

from broker.errors import Invalid
from broker.models.tasks import Event, Item
from broker.server import JSON
from broker.storage.database import addressed
from broker.storage.migration import upgrade
from broker.storage.tasks import TaskStore
from tests.broker.worlds import ANN, working, world_at
from tests.coalloc.cli.test_foreign_text import WORDS, check
from tests.support.terminal import at_terminal

PROGRAM = Path(sys.executable).with_name("coget-broker")


async def test_events_and_errors_of_tasks(servers, database, tmp_path):
    async with world_at(servers, database, tmp_path) as world, working(world):
        task = await world.done("TRANSFER", [Item(source="/none", destination="/x")], "local")
        async with world.factory.database.write() as connection:
            await TaskStore(connection).note([(str(task.id), Event(1.0, "X", True, "x", WORDS))])
        events = (await world.factory.tasks.events(ANN, str(task.id), None, 100, 0))[0]
        assert any("\\x1b" in each.details for each in events)
        assert all(each.details.isprintable() for each in events)


def test_errors_are_one_line_each():
    error = Invalid(WORDS, WORDS)
    assert (error.message.isprintable(), error.remedy.isprintable(), str(error).isprintable()) == (True, True, True)


def test_a_line_of_the_log_is_printable_json():
    line = JSON(None, "info", {"event": WORDS.replace("\ud800", "") + "\x7f"})
    assert (line.isascii(), line.isprintable(), json.loads(line)["event"][-1]) == (True, True, "\x7f")


@pytest.fixture
def tables(tmp_path):
    """The URL of a SQLite database with tables."""
    url = f"sqlite:///{tmp_path / 'b.sqlite'}"
    upgrade(addressed(url))
    return url


def test_commands_at_a_terminal(tables, tmp_path):
    for words in (["serve", "--rank", WORDS], ["report", WORDS]):
        words = [word.replace("\ud800", "\udcff") for word in words]
        status, output = at_terminal([PROGRAM, *words], tmp_path, COGET_BROKER_DATABASE=tables)
        assert (status, "\\x1b" in output.decode()) == (2, True), output
        check(output)


def test_a_report_at_a_terminal(tables, tmp_path):
    with sqlite3.connect(tables.removeprefix("sqlite:///")) as connection:
        row = (time.time(), "ann\x1b[41m", "x\x9b41m", "y\u202e")
        connection.execute("INSERT INTO audit (at, subject, action, thing) VALUES (?, ?, ?, ?)", row)
    for words in (["audit/changes", "--format", "csv"], ["audit", "--format", "json"]):
        status, output = at_terminal([PROGRAM, "report", *words, "--database", tables], tmp_path)
        assert (status, "ann" in output.decode()) == (0, True), output
        check(output.replace(b"\r\r\n", b"\r\n"))
