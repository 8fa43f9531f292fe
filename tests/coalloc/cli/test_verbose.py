"""`-v`: what servers are asked, and when, without secrets and without anything that servers could do to a terminal."""

import asyncio
import re

from tests.support.coget import coget
from tests.support.halving import HalvingServer
from tests.support.plain_ftp import PlainFTP, serve
from tests.support.programs import COGET
from tests.support.scripted import ftp_server, raw_server
from tests.support.terminal import at_terminal

CONTENT = bytes(range(250)) * 400
LINE = re.compile(r"^ +\d+\.\d{3} s  (\S+) ([<>]) (.*)$", re.MULTILINE)


async def lines(home, *words):
    """Run `coget -v`; return its status, the shown requests and answers, and all its output."""
    done = await asyncio.to_thread(coget, ["-v", *words], home)
    return done.returncode, LINE.findall(done.stderr), done.stdout + done.stderr


async def test_an_ftp_server_is_asked_for_one_thing_after_another(tmp_path):
    async with serve(PlainFTP(CONTENT, password="hush 1234")) as server:
        where = server.url.split("/")[2]
        url = server.url.replace("://", "://ann:hush%201234@")
        status, found, output = await lines(tmp_path, url, "--json")
    assert (status, (tmp_path / "file").read_bytes()) == (0, CONTENT)
    asked = [what for host, arrow, what in found if (host, arrow) == (where, ">")]
    assert asked[:4] == ["connect", "USER ann", "PASS ...", "TYPE I"]
    assert "RETR /file" in asked
    assert (where, "<", f"213 {len(CONTENT)}") in found
    assert "hush" not in output


async def test_a_password_that_a_server_repeats_is_hidden_and_its_text_is_escaped(tmp_path):
    said = b"530 not with hush1234 nor h%75sh1234, \x1b[41m\xe2\x80\xae\r\n"
    async with ftp_server(PASS=said) as url:
        status, found, output = await lines(tmp_path, url.replace("://", "://ann:hush1234@"))
    assert status == 7
    assert [what for _, arrow, what in found if arrow == "<" and "530" in what] == [
        r"530 not with ... nor ..., \x1b[41m\u202e"
    ]
    assert "hush1234" not in output
    assert output.isprintable() or set(output) - {"\n"} == {char for char in output if char.isprintable()}


async def test_a_web_server_is_asked_for_ranges(tmp_path):
    server = HalvingServer(CONTENT)
    server.whole.set()
    async with raw_server(server.serve) as port:
        url = f"http://t0ken:pa55word@127.0.0.1:{port}/x?key=s3cretkey"
        status, found, output = await lines(tmp_path, url, "-o", "x")
    assert (status, (tmp_path / "x").read_bytes()) == (0, CONTENT)
    shown = f"http://127.0.0.1:{port}/x?..."
    assert any(each[:2] == (shown, ">") and each[2].startswith("GET") for each in found)
    assert any(each[:2] == (shown, "<") and each[2].startswith("20") for each in found)
    assert not any(secret in output for secret in ("t0ken", "pa55word", "s3cretkey", "Authorization"))


async def test_at_a_terminal_no_bars_are_drawn_between_the_lines(tmp_path):
    async with serve(PlainFTP(CONTENT)) as server:
        status, output = await asyncio.to_thread(at_terminal, [COGET, "-v", server.url], tmp_path)
    assert status == 0
    assert b"> SIZE /file" in output
    assert b"\x1b[1A" not in output


async def test_nothing_is_shown_unless_it_is_wanted(tmp_path):
    async with serve(PlainFTP(CONTENT)) as server:
        done = await asyncio.to_thread(coget, [server.url], tmp_path)
    assert not LINE.search(done.stderr)
