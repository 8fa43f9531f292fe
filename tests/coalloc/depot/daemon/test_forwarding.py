import os
from pathlib import Path

import pytest

from coalloc.depot.daemon.forwarding import ForwardingTable
from coalloc.depot.protocol.addresses import HostPort
from coalloc.errors import UsageError

TO = HostPort("192.0.2.1", 80)
A, B = HostPort("depot-a.example", 4000), HostPort("another-depot.example", 4000)  # of other length: files differ


def written(path: Path, depot: HostPort = A) -> Path:
    path.write_text(f'[[next]]\ndestinations = ["192.0.2.0/24"]\ndepot = "{depot}"\n')
    return path


async def chosen(table: ForwardingTable) -> HostPort:
    hop = await table.next_hop(TO, [TO.host])
    assert hop is not None
    return hop.depot


INVALID = [
    "next = 1",
    'next = "x"',
    "[next]\na = 1",
    "[[next]]",
    "[[next]]\ndestinations = []",
    '[[next]]\ndestinations = "192.0.2.1"\ndepot = "a:1"',
    '[[next]]\ndestinations = ["192.0.2.1"]\ndepot = 1',
    '[[next]]\ndestinations = [1]\ndepot = "a:1"',
    '[[next]]\ndestinations = ["192.0.2.1"]\ndepot = "a:1"\nticket = "t"',
    '[[next]]\ndestinations = ["192.0.2.1"]\ndepot = "a:1"\nticket = "t"\nkey = "xy"',
    '[[next]]\ndestinations = ["192.0.2.1"]\ndepot = "a:1"\nticket = 1\nkey = "00"',
    '[[next]]\ndestinations = ["192.0.2.1"]\ndepot = "a:1"\nticket = "t"\nkey = 1',
    "x = " + "[" * 5000,
    "\\",
]


@pytest.mark.parametrize("text", INVALID)
async def test_an_invalid_table_is_an_error_at_the_start_and_changes_nothing_later(tmp_path, caplog, text: str):
    path = tmp_path / "table"
    path.write_text(text)
    with pytest.raises(UsageError, match="invalid table"):
        ForwardingTable(path)
    table = ForwardingTable(written(path))
    path.write_text(text)
    assert await chosen(table) == A
    assert "the earlier table stays in force" in caplog.text


async def test_a_table_that_could_not_be_read_is_read_later(tmp_path, monkeypatch):
    path = written(tmp_path / "table")
    table = ForwardingTable(path)
    with monkeypatch.context() as patch:

        def denied(_: Path) -> str:
            raise PermissionError(13, "Permission denied")

        patch.setattr(Path, "read_text", denied)
        written(path, B)
        assert await chosen(table) == A
    assert await chosen(table) == B


def test_a_pipe_is_no_table(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(UsageError, match="not a file"):
        ForwardingTable(path)


async def test_a_pipe_in_the_place_of_a_table_changes_nothing(tmp_path):
    path = written(tmp_path / "table")
    table = ForwardingTable(path)
    path.unlink()
    os.mkfifo(path)
    assert await chosen(table) == A
