"""Real servers of one file, for tests of commands."""

import pytest

from tests.support.coget import CONTENT, NAME


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """Two servers of one file; the third server has none."""
    started = [start_gridftp(tmp_path / f"server{n}", host=f"127.0.0.{n}") for n in (2, 3, 4)]
    for server in started[:2]:
        (server.root / NAME).write_bytes(CONTENT)
    return started


@pytest.fixture
def urls(servers):
    return [server.url(NAME) for server in servers]


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"
