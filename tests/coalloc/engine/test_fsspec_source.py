"""fsspec as an engine: errors of its file systems become this project's errors."""

import socket
import sys

import fsspec
import pytest
from fsspec.spec import AbstractFileSystem

from coalloc.engine.fsspec_source import BLOCK, BridgeSource
from coalloc.errors import (
    ConnectionLost,
    NoSuchFile,
    PermissionRefused,
    ServerSays,
    SourceError,
    Stalled,
    UnknownHost,
    Unreachable,
    Unsupported,
)
from tests.support.fetching import collect, opened, options, random_file


async def failure(url):
    source = BridgeSource(url, options())
    with pytest.raises(SourceError) as caught:
        await source.open()
    await source.close()
    assert caught.value.remedy
    return caught.value


async def test_a_file_of_several_blocks(tmp_path):
    content = random_file(tmp_path / "file", 2 * BLOCK + 1)
    async with opened(BridgeSource(f"file://{tmp_path}/file", options())) as source:
        assert await collect(source, 1, len(content)) == content[1:]


async def test_the_validator_changes_with_the_file(tmp_path):
    random_file(tmp_path / "file", 10)
    async with opened(BridgeSource(f"file://{tmp_path}/file", options())) as source:
        before = await source.open()
        random_file(tmp_path / "file", 11)
        after = await source.open()
    assert (before.size, after.size) == (10, 11)
    assert before.validator != after.validator


async def test_a_file_that_became_shorter(tmp_path):
    random_file(tmp_path / "file", 1000)
    async with opened(BridgeSource(f"file://{tmp_path}/file", options())) as source:
        (tmp_path / "file").write_bytes(b"short")
        with pytest.raises(ConnectionLost, match="at byte 5 of 0-1000"):
            await collect(source, 0, 1000)


async def test_protocols_without_an_installed_package_are_unsupported(monkeypatch):
    monkeypatch.setitem(sys.modules, "paramiko", None)
    monkeypatch.delitem(sys.modules, "coalloc.engine.sftp", raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.sftp", raising=False)
    error = await failure("sftp://me:secret@host/x")
    assert type(error) is Unsupported
    assert "paramiko" in error.remedy
    assert "secret" not in error.message
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.exceptions", None)
    error = await failure("gs://bucket/x")
    assert type(error) is Unsupported
    assert "coget[clouds]" in error.remedy
    error = await failure("nonsense://host/x")
    assert type(error) is Unsupported
    assert "nonsense://" in error.message


async def test_a_directory_is_no_file(tmp_path):
    assert type(await failure(f"file://{tmp_path}")) is NoSuchFile


async def test_chains_of_file_systems_are_not_built():
    assert type(await failure("memory://x::file:///etc/passwd")) is Unsupported


class Failing(AbstractFileSystem):
    """A file system that fails with `error`."""

    protocol = "failing"
    error: Exception

    def info(self, path, **kwargs):
        raise self.error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (FileNotFoundError("x"), NoSuchFile),
        (PermissionError("x"), PermissionRefused),
        (socket.gaierror("x"), UnknownHost),
        (ConnectionRefusedError("x"), Unreachable),
        (ConnectionResetError("x"), ConnectionLost),
        (TimeoutError(), Stalled),
        (NotImplementedError(), Unsupported),
        (RuntimeError("failing://me:secret@host/x is odd"), ServerSays),
    ],
)
async def test_foreign_errors_become_ours(error, kind):
    fsspec.register_implementation("failing", Failing, clobber=True)
    Failing.error = error
    ours = await failure("failing://me:secret@host/x")
    assert type(ours) is kind
    assert "failing://me@host/x" in ours.message
    assert "secret" not in ours.message
