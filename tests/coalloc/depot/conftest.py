"""A server that accepts connections, and two depots."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.waiting import PATIENCE


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let slow machines use the routes, too."""
    monkeypatch.setattr("coalloc.depot.dialer.HEAD_START", PATIENCE)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listener at a port of the loopback interface."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


@pytest.fixture
def two(tmp_path: Path) -> Iterator[list[RunningDepot]]:
    """Two depots that may connect to this machine."""
    with depots(tmp_path, LOOPBACK, LOOPBACK) as running:
        yield running
