"""Fixtures that many tests share: real servers that end with their test."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.gridftp import GridFTPServer


@pytest.fixture
def start_gridftp() -> Iterator[Callable[..., GridFTPServer]]:
    """A function that starts GridFTP servers (arguments as of GridFTPServer); they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(GridFTPServer(*args, **kwargs))


@pytest.fixture
def gridftp_server(start_gridftp: Callable[..., GridFTPServer], tmp_path: Path) -> GridFTPServer:
    """One GridFTP server that serves `tmp_path / "export"`."""
    return start_gridftp(tmp_path / "export")
