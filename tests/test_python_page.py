"""The page on Python: its examples run as printed, and a request takes what a user would write."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from coalloc import api
from coalloc.errors import CoallocError, UsageError
from tests.support.fetching import random_file
from tests.support.gridftp import GridFTPServer
from tests.support.halving import HalvingServer
from tests.support.scripted import raw_server

PAGE = Path(__file__).parents[1] / "docs/howto/python.md"
PRINTED = {
    "In a program": r"(?s)(?=.*x\.root 300000 bytes, verified: True)(?=.*y\.root 300000 bytes, verified: True).*",
    "In a notebook": "",
    "Cancel": "stopped; the next download continues\n",
    "Show progress": r"(?s).*done: 300000 of 300000 bytes, [\d.]+ MB/s\n",
    "Handle errors": r"no_such_file - do not try again\nftp://.*550.*\ncheck the path.*\n",
}
CELL = """
import ast, asyncio, inspect, sys
code = compile(sys.stdin.read(), "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
async def run():
    await eval(code, {})
asyncio.run(run()) if code.co_flags & inspect.CO_COROUTINE else exec(code, {"__name__": "__main__"})
"""
"""Program that runs its input as a program, or, if it awaits something, as a cell of a notebook."""


@pytest.fixture
def servers(start_gridftp, tmp_path) -> list[GridFTPServer]:
    made = [start_gridftp(tmp_path / "export", host) for host in ("127.0.0.2", "127.0.0.3")]
    for seed, name in enumerate(("x.root", "y.root")):
        random_file(made[0].root / name, 300_000, seed)
    return made


def run(code: str, home: Path) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HOME": str(home), "COGET_HISTORY": "off"}
    command = [sys.executable, "-c", CELL]
    return subprocess.run(command, input=code, capture_output=True, text=True, cwd=home, env=environment)


async def test_the_examples_run_as_printed(servers, tmp_path):
    examples = re.findall(r"^## (.+)\n(?:(?!^## )[\s\S])*?```python\n([\s\S]*?)```", PAGE.read_text(), re.MULTILINE)
    assert [title for title, _ in examples] == list(PRINTED)
    home = tmp_path / "home"
    (home / "data").mkdir(parents=True)
    async with raw_server(HalvingServer(bytes(range(250)) * 4000).serve) as port:
        for title, code in examples:
            for name, url in zip("ab", (server.url("") for server in servers), strict=True):
                code = code.replace(f"ftp://{name}.example", url)
            code = code.replace("slow.example", f"127.0.0.1:{port}")
            done = await asyncio.to_thread(run, code, home)
            assert (done.returncode, done.stderr) == (0, ""), title
            assert re.fullmatch(PRINTED[title], done.stdout), done.stdout
    content = [(servers[0].root / name).read_bytes() for name in ("x.root", "y.root")]
    fetched = ["x.root", "data/x.root", "y.root", "again.root"]
    assert [(home / name).read_bytes() for name in fetched] == [content[0], content[0], content[1], content[1]]


@pytest.mark.parametrize(
    ("output", "name"), [("here", "here"), ("folder/", "folder/x.root"), ("folder", "folder/x.root"), (None, "x.root")]
)
async def test_an_output_may_be_a_string(servers, tmp_path, monkeypatch, output, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (report,) = await api.download(api.Request(servers[0].url("x.root"), output=output))
    assert report.output == name
    assert (tmp_path / name).read_bytes() == (servers[0].root / "x.root").read_bytes()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"output": b"x"}, "not a path"),
        ({"output": 7}, "not a path"),
        ({"output": ""}, "is empty"),
        ({"output": "none/"}, "not a directory"),
        ({"engine": "steam"}, "unknown engine steam"),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused_with_a_reason(tmp_path, wrong, says):
    with pytest.raises(UsageError, match=says):
        await api.download(api.Request("ftp://127.0.0.1:9/x", **wrong))


async def test_an_error_says_whether_it_may_pass(servers, tmp_path):
    for url, passes in ((servers[0].url("none"), False), ("ftp://127.0.0.1:9/x", True)):
        with pytest.raises(CoallocError) as caught:
            await api.download(api.Request(url, output=tmp_path / "x"))
        assert caught.value.transient == passes
