"""Limits of one process: concurrent connections and programs, for any number of replicas."""

import asyncio
import os

import pytest

from coalloc.api import Request, download, plan
from coalloc.engine import open_source
from coalloc.engine.limits import within_process
from coalloc.engine.limits.within_process import CONNECTING, PROCESSES
from coalloc.errors import NoFreeConnection, NoFreeProcess, NothingToFetchFrom
from tests.support.fetching import options
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE

MANY = 150
TOOL = """#!/bin/sh
mkdir "$PLACES/running.$$"
ls "$PLACES" | grep -c running > "$PLACES/count.$$"
sleep 0.05
rmdir "$PLACES/running.$$"
echo "error: no such file" >&2
exit 1
"""


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """A globus-url-copy that counts its running copies and finds no file; the file with the count."""
    program, counts = tmp_path / "bin" / "globus-url-copy", tmp_path / "counts"
    program.parent.mkdir()
    counts.mkdir()
    program.write_text(TOOL)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PLACES", str(counts))
    return counts


def counted(counts):
    return [int(each.read_text()) for each in counts.iterdir()]


@pytest.mark.parametrize("act", [download, plan])
async def test_few_processes_run_at_once(tool, tmp_path, monkeypatch, act):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    urls = tuple(f"sshftp://host{number}.invalid:{1000 + number}/file" for number in range(40))
    with pytest.raises(NothingToFetchFrom):
        await act(Request(urls, output=tmp_path / "file"))
    assert max(counted(tool)) <= PROCESSES
    assert len(counted(tool)) == len(urls)


async def test_source_without_a_free_process_gets_one_when_another_ends(tool):
    for _ in range(PROCESSES):
        await within_process.processes.here().acquire()
    source = open_source("sshftp://host.invalid/file", "auto", options())
    with pytest.raises(NoFreeProcess) as caught:
        await source.open()
    assert isinstance(caught.value, NoFreeConnection)
    assert counted(tool) == []
    waiting = asyncio.create_task(caught.value.until_free())
    await asyncio.sleep(0)
    assert not waiting.done()
    within_process.processes.here().release()
    await waiting
    assert within_process.processes.here().locked()
    await source.close()
    await source.close()
    assert not within_process.processes.here().locked()


@pytest.mark.parametrize("act", [download, plan])
@pytest.mark.parametrize("scheme", ["ftp", "http"])
async def test_few_connect_at_once(tmp_path, monkeypatch, scheme, act):
    """The server holds each connection until another one arrives and no more come, and then ends it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    now = most = total = 0
    another = asyncio.Event()

    async def serve(reader, writer):
        nonlocal now, most, total
        now, total = now + 1, total + 1
        most = max(most, now)
        if now > 1:
            another.set()
        async with asyncio.timeout(PATIENCE):
            await another.wait()
        for _ in range(20):  # loop iterations in which others may come
            await asyncio.sleep(0.005)
        now -= 1
        writer.write(b"500 no file server\r\n")

    async with raw_server(serve) as port:
        urls = tuple(f"{scheme}://127.0.0.1:{port}/{number}" for number in range(MANY))
        monkeypatch.setenv("COGET_CONNECTIONS", "off")
        with pytest.raises(NothingToFetchFrom):
            await act(Request(urls, output=tmp_path / "file"))
    assert total >= MANY
    assert 1 < most <= CONNECTING
