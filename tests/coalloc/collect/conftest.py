"""Servers of collect jobs: two with files, one relay between them, and a destination."""

import pytest

from coalloc.collect import methods
from tests.support.fetching import random_file
from tests.support.relaying import Relay

SIZES = {"empty": 0, "one": 1, "small": 300_000, "large": 9_000_000}


@pytest.fixture
def history(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))


@pytest.fixture
def relay(monkeypatch):
    """Register the test's own method, which relays everything."""
    own = type("Own", (Relay,), {})
    monkeypatch.setitem(methods.METHODS, Relay.name, own)
    return own


@pytest.fixture
def servers(start_gridftp, tmp_path):
    """Two servers with files, and one relay between them."""
    (tmp_path / "via" / "lent").mkdir(parents=True)
    return [start_gridftp(tmp_path / name, f"127.0.0.{number}") for number, name in enumerate(("a", "b", "via"), 2)]


@pytest.fixture
def sink(start_gridftp, tmp_path):
    return start_gridftp(tmp_path / "sink", "127.0.0.9")


@pytest.fixture
def content(servers):
    """Return the files to collect, by name."""
    a, b, _ = servers
    made = {f"{name}.a": random_file(a.root / f"{name}.a", size) for name, size in SIZES.items()}
    (b.root / "run" / "deep").mkdir(parents=True)
    for name, size in SIZES.items():
        made[f"deep/{name}"] = random_file(b.root / "run" / "deep" / name, size)
    return made


@pytest.fixture(params=["here", "server"])
def place(request, tmp_path, sink):
    """Return the destination for `--to`, and the directory behind it."""
    return (
        (str(tmp_path / "out"), tmp_path / "out") if request.param == "here" else (sink.url("out"), sink.root / "out")
    )
