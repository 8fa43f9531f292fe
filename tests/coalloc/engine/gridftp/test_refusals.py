"""Meanings of refusals, in the words of real servers."""

import asyncio
import socket

import pytest

from coalloc.engine.batched_reads import ReadBuffer
from coalloc.engine.globus_url_copy import URLCopySource
from coalloc.engine.gridftp import GridFTPSource
from coalloc.engine.gridftp.refusals import login_refusal, refusal
from coalloc.engine.gridftp.replies import Reply
from coalloc.engine.gridftp.stream import _Receiver
from coalloc.engine.span import PacedSpan, Span
from coalloc.errors import (
    AlreadyThere,
    ConnectionLost,
    LoginRefused,
    NoSpace,
    NoSuchFile,
    NotEmpty,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    Unsupported,
)
from tests.support.fetching import opened, options, random_file
from tests.support.waiting import PATIENCE

FULL = [
    (421, "Service busy: Connection limit exceeded. Please try again later. Closing control connection."),  # Globus
    (421, "There are too many connections from your internet address."),  # vsftpd
    (421, "10 users (the maximum) are already logged in, sorry"),  # Pure-FTPd
    (530, "Sorry, the maximum number of clients (3) from your host are already connected."),  # ProFTPD
    (530, "Sorry, max 10 users -- try again later"),
    (425, "Too many data connections"),
    (450, "Server busy"),
]


@pytest.mark.parametrize(("code", "text"), FULL)
def test_a_server_that_is_full(code, text):
    error = refusal(Reply(code, (text,)), "ftp://host/x")
    assert type(error) is ServerBusy
    assert text in error.message
    assert not error.permanent
    assert error.retry_after


@pytest.mark.parametrize(
    ("code", "text", "kind"),
    [
        (421, "Idle timeout", ConnectionLost),
        (530, "Login incorrect.", LoginRefused),
        (550, "x.busy: No such file", NoSuchFile),
        (550, "too many levels of symbolic links", NoSuchFile),
        (426, "Connection closed; transfer aborted", ServerSays),
        (500, "System error in write: No space left on device", NoSpace),
        (451, "GridFTP-Error-String: Disk quota exceeded", NoSpace),
        (552, "Insufficient storage space", NoSpace),
        (550, "Operation not permitted", PermissionRefused),
        (521, "Directory already exists", AlreadyThere),
        (550, "x: Directory not empty", NotEmpty),
        (500, f"System error in open of {'/x' * 3000}: File name too long", Unsupported),
    ],
)
def test_other_refusals(code, text, kind):
    assert type(refusal(Reply(code, (text,)), "ftp://host/x")) is kind


@pytest.mark.parametrize(
    ("name", "remedy"), [("anonymous", "give user and password"), ("ann", "check the user and the password")]
)
def test_a_refused_login_with_and_without_a_name(name, remedy):
    error = login_refusal(Reply(331, ("Password?",)), Reply(530, ("Login incorrect.",)), "host:21", name)
    assert f"login to host:21 as {name}" in error.message
    assert error.remedy.startswith(remedy)
    secure = login_refusal(
        Reply(331, ("Password?",)), Reply(530, ("Must perform GSSAPI authentication",)), "host:21", name
    )
    assert secure.remedy.startswith("use gsiftp://")


@pytest.mark.parametrize("engine", [GridFTPSource, URLCopySource])
async def test_a_real_server_that_is_full(start_gridftp, tmp_path, engine):
    server = start_gridftp(tmp_path / "export", options=("-connections-max", "1"))
    random_file(server.root / "file", 10)
    url = server.url("file")
    async with opened(GridFTPSource(url, options())):
        with pytest.raises(ServerBusy, match="Connection limit exceeded"):
            await engine(url, options()).open()


async def test_a_refusal_at_a_pause_ends_the_reception():
    transfer = asyncio.get_running_loop().create_future()

    async def turn(nbytes):
        pass

    def deliver(start, end, data):
        transfer.set_result(Reply(426, ("Connection closed; transfer aborted",)))

    here, there = socket.socketpair()
    with here, there:
        here.setblocking(False)
        receiver = _Receiver(here, PacedSpan(Span(0, 100), 10, turn), deliver, ReadBuffer(here, None))
        transfer.add_done_callback(receiver.replied)
        there.send(bytes(10))
        async with asyncio.timeout(PATIENCE):
            assert await receiver.run() == 10
