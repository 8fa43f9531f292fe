"""The file system as fsspec finds it, whose connections end with the test."""

import fsspec
import pytest
from fsspec.asyn import sync

from coalloc.plugins.fsspec_system import CogetFileSystem


@pytest.fixture(autouse=True)
def registered(tmp_path, monkeypatch):
    """The file system, known to fsspec as an installed one is; it has no broker."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "no-config"))
    monkeypatch.setenv("COGET_HISTORY", "off")
    for protocol in CogetFileSystem.protocol:
        fsspec.register_implementation(protocol, CogetFileSystem, clobber=True)
    yield CogetFileSystem
    for made in CogetFileSystem._cache.values():
        if not made.asynchronous:
            sync(made.loop, made.aclose)
    CogetFileSystem.clear_instance_cache()
