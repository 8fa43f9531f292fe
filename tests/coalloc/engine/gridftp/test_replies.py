"""Bytes to events: the events are the same however the bytes are split."""

import contextlib
import itertools
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.engine.gridftp.blocks import Block, BlockReader, EndOfData, EndOfFile
from coalloc.engine.gridftp.replies import (
    LineReader,
    Reply,
    ReplyReader,
    extended_passive_port,
    facts,
    features,
    format_command,
    passive_address,
)
from coalloc.errors import NotThatProtocol, ServerSays, Unsupported

SESSION = (
    b"220 vm GridFTP Server 13.24 ready.\r\n"
    b"211-Extensions supported\r\n CKSM MD5:10;ADLER32:10;\r\n ERET\r\n REST STREAM\r\n211 End.\r\n"
    b"250-status of /d/\xc3\xa4 b\r\n Type=file;Modify=20260520162729;Size=1221; /d/\xc3\xa4 b\r\n250 End.\r\n"
    b"550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n550 End.\r\n"
    b"226\r\n"
    b"214-Help\n226 is not the end\n214-neither is this\n214 now it is\n"
)
REPLIES = [
    (220, ("vm GridFTP Server 13.24 ready.",)),
    (211, ("Extensions supported", "CKSM MD5:10;ADLER32:10;", "ERET", "REST STREAM", "End.")),
    (250, ("status of /d/ä b", "Type=file;Modify=20260520162729;Size=1221; /d/ä b", "End.")),
    (550, ("GlobusError: v=1 c=PATH_NOT_FOUND", "GridFTP-Errno: 2", "End.")),
    (226, ("",)),
    (214, ("Help", "226 is not the end", "neither is this", "now it is")),
]


def cut(data, places):
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def read_replies(chunks):
    lines, replies = LineReader(), ReplyReader()
    found = [replies.feed(line) for chunk in chunks for line in lines.feed(chunk)]
    return [(reply.code, reply.lines) for reply in found if reply]


@given(st.lists(st.integers(0, len(SESSION))))
def test_replies_do_not_depend_on_how_bytes_arrive(places):
    assert read_replies(cut(SESSION, places)) == REPLIES


@pytest.mark.parametrize("line", [b"SSH-2.0-OpenSSH_9.2", b"HTTP/1.1 400 Bad Request", b"", b"22", b"999 x", b"2200 x"])
def test_lines_that_are_no_replies_are_refused(line):
    with pytest.raises(NotThatProtocol):
        ReplyReader().feed(line)


def test_endless_lines_and_replies_are_refused():
    with pytest.raises(ServerSays):
        LineReader().feed(b"220 " + b"x" * 70_000)
    replies = ReplyReader()
    replies.feed(b"220-begin")
    with pytest.raises(NotThatProtocol):
        deque((replies.feed(b"more") for _ in range(20_000)), maxlen=0)


@given(st.binary(max_size=300))
def test_any_bytes_are_replies_or_an_error_of_ours(data):
    with contextlib.suppress(NotThatProtocol):
        read_replies([data, b"\n"])


def test_text_for_people_has_no_control_characters():
    reply = Reply(550, ("\x1b[31mred\x07", "End.", "x" * 1000))
    assert reply.text.startswith(r"\x1b[31mred\x07; xxx")
    assert len(reply.text) == 400


@pytest.mark.parametrize("path", ["/a\r\nDELE /b", "/a\nb", "/a\0"])
def test_commands_cannot_be_smuggled_in(path):
    with pytest.raises(Unsupported) as caught:
        format_command(f"PASS {path}")
    assert "DELE" not in str(caught.value)


def test_commands_are_utf8_and_other_bytes_survive():
    assert format_command("SIZE /ä b") == b"SIZE /\xc3\xa4 b\r\n"
    assert format_command("SIZE /" + b"\xe4".decode(errors="surrogateescape")) == b"SIZE /\xe4\r\n"


@pytest.mark.parametrize(
    "text", ["", "(1,2,3)", "(127,0,0,1,0,0)", "(256,0,0,1,4,1)", "(127,0,0,1,256,1)", "(|||1025|)"]
)
def test_a_227_without_address_is_an_error(text):
    with pytest.raises(ServerSays):
        passive_address(Reply(227, (text,)))


def test_a_227_needs_no_parentheses():
    assert passive_address(Reply(227, ("=10,0,0,7,200,10",))) == ("10.0.0.7", 51210)


@pytest.mark.parametrize("text", ["", "(|||0|)", "(|||65536|)", "(||1025|)", "(|!|1025|)"])
def test_a_229_without_port_is_an_error(text):
    with pytest.raises(ServerSays):
        extended_passive_port(Reply(229, (text,)))


def test_lists_of_a_server_that_has_none():
    assert features(Reply(500, ("unknown command",))) == {}
    assert facts(Reply(500, ("unknown command",))) == {}
    assert facts(Reply(250, ("odd",))) == {}


def block(descriptor, count, offset, data=b""):
    return BlockReader.HEADER.pack(descriptor, count, offset) + data


STREAM = (
    block(0, 5, 100, b"hello")
    + block(0, 0, 0)
    + block(0, 300, 2**40, bytes(300))
    + block(0x48, 0, 3)
    + block(0, 1, 7, b"x")
    + block(0x0C, 0, 0)
)


def read_blocks(chunks):
    """Return events with adjacent pieces of one block joined."""
    reader, found = BlockReader(), []
    for chunk in chunks:
        for event in reader.feed(memoryview(chunk)):
            if not isinstance(event, Block):
                found.append(event)
            elif found and isinstance(found[-1], Block) and found[-1].offset + len(found[-1].view) == event.offset:
                found[-1] = Block(found[-1].offset, found[-1].view + bytes(event.view))
            else:
                found.append(Block(event.offset, bytes(event.view)))
    return found


@given(st.lists(st.integers(0, len(STREAM)), max_size=60))
def test_blocks_do_not_depend_on_how_bytes_arrive(places):
    expected = [
        Block(100, b"hello"),
        Block(2**40, bytes(300)),
        EndOfFile(3),
        EndOfData(closes=False),
        Block(7, b"x"),
        EndOfData(closes=True),
    ]
    found = read_blocks(cut(STREAM, places))
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))


def test_a_suspect_block_is_an_error():
    with pytest.raises(ServerSays):
        BlockReader().feed(memoryview(block(0x20, 1, 0)))
