"""globus-url-copy as an engine: its start, its options, and its messages."""

import asyncio
import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from coalloc.engine.globus_url_copy import TOOL, URLCopySource, meaning
from coalloc.engine.span import Span
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

SIZE = 3_000_001


@pytest.fixture(autouse=True)
def tool():
    if not shutil.which(TOOL):
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("globus-url-copy is not installed: apt-get install globus-gass-copy-progs")


async def failure(url, **changes):
    source = URLCopySource(url, options(**changes))
    with pytest.raises(SourceError) as caught:
        await source.open()
    assert caught.value.remedy
    return caught.value


def children():
    """Return the command lines of the processes that this one has started."""
    lines = {}
    for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            lines[pid] = Path(f"/proc/{pid}/cmdline").read_text()
    return lines


@pytest.mark.parametrize("zone", ["UTC", "XXX-14", "XXX3:30"])
async def test_size_and_time_of_change(gridftp_server, zone, monkeypatch):
    """Times do not depend on the user's time zone: a partial file survives travel and summer time."""
    monkeypatch.setenv("TZ", zone)
    random_file(gridftp_server.root / "file", SIZE)
    os.utime(gridftp_server.root / "file", (1_000_000, 1_000_000))
    stat = await URLCopySource(gridftp_server.url("file"), options()).open()
    assert (stat.size, stat.validator) == (SIZE, "1000000")


async def test_no_url_stands_in_a_command_line_and_no_process_is_left(gridftp_server):
    random_file(gridftp_server.root / "file", SIZE)
    before, seen = children(), []

    def deliver(start, end, data):
        seen.extend(line for pid, line in children().items() if pid not in before)
        task.cancel()

    async with opened(URLCopySource(gridftp_server.url("file"), options())) as source:
        task = asyncio.create_task(source.fetch(Span(0, SIZE), deliver))
        with pytest.raises(asyncio.CancelledError):
            await task
        assert children().keys() <= before.keys()
    (line,) = [line for line in seen if TOOL in line]
    assert "file" not in line


async def test_beyond_the_end_of_the_file_is_an_error(gridftp_server):
    """The tool ends with status 0 there."""
    random_file(gridftp_server.root / "file", SIZE)
    async with opened(URLCopySource(gridftp_server.url("file"), options())) as source:
        with pytest.raises(ConnectionLost, match=f"at byte {SIZE} of {SIZE - 5}-{SIZE + 5}"):
            await collect(source, SIZE - 5, SIZE + 5)


async def test_a_path_below_the_login_directory(gridftp_server):
    content = random_file(gridftp_server.root / "file", 100)
    url = f"ftp://{gridftp_server.host}:{gridftp_server.port}/~/file"
    async with opened(URLCopySource(url, options())) as source:
        assert await collect(source, 0, 100) == content


async def test_a_directory_is_no_file(gridftp_server):
    assert type(await failure(gridftp_server.url(""))) is NoSuchFile


async def test_a_refused_login_does_not_show_the_password(gridftp_server):
    error = await failure(gridftp_server.url("file").replace("://", "://me:secret@"))
    assert type(error) is PermissionRefused
    assert "secret" not in error.message


@pytest.mark.parametrize(
    "url", ["gsiftp://host/a%0D%0ADELE b", "ftp://host/a%00b", "ftp://host/%C3%A4", "ftp://host/\u00e4"]
)
async def test_names_that_a_server_would_not_hear_as_they_are(url):
    assert type(await failure(url)) is Unsupported


async def test_a_silent_server(gridftp_server):
    gridftp_server.pause()
    assert type(await failure(gridftp_server.url("file"), connect_seconds=0.1)) is Stalled


async def test_a_tool_that_is_not_installed(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    error = await failure("ftp://host/x")
    assert type(error) is Unsupported
    assert "apt-get install" in error.remedy


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("500-globus_xio: Unable to open file /x 500-globus_xio: System error in open: No such file", NoSuchFile),
        ("550-GlobusError: v=1 c=PATH_NOT_FOUND 550-GridFTP-Errno: 2", NoSuchFile),
        ("500-globus_xio: System error in read: Is a directory", NoSuchFile),
        ("globus_xio: Unable to open file /x System error in open: Permission denied", PermissionRefused),
        ("530 Login incorrect. : Access denied by configuration.", PermissionRefused),
        ("globus_credential: Valid credentials could not be found in any of the locations", PermissionRefused),
        ("globus_xio: Unable to connect to h:1 globus_libc_getaddrinfo failed. Name or service not known", UnknownHost),
        ("globus_libc_getaddrinfo failed. Temporary failure in name resolution", Unreachable),
        ("globus_xio: Unable to connect to 127.0.0.1:1 System error in connect: Connection refused", Unreachable),
        ("an end-of-file was reached globus_xio: An end of file occurred", ConnectionLost),
        ("globus_xio: System error in recv: Connection reset by peer", ConnectionLost),
        ("Unable to list url foo://a/b: error parsing url scheme.", Unsupported),
        ("451 the tape robot is asleep", ServerSays),
        ("", ServerSays),
    ],
)
def test_messages_of_globus_url_copy_become_our_errors(words, kind):
    error = meaning(words, "gsiftp://host/x")
    assert type(error) is kind
    assert "gsiftp://host/x" in error.message
    assert error.remedy
