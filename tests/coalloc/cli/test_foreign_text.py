"""Text from servers, brokers, documents and files: terminals get no control characters from it."""

import asyncio
import json
import re
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.scripted import ftp_server
from tests.support.terminal import at_terminal

COGET = Path(sys.executable).with_name("coget")
HOSTILE = {
    "csi": "\x1b[41m",
    "osc": "\x1b]0;title\x07",
    "link": "\x1b]8;;http://evil.example\x1b\\here",
    "c1": "\x9b41m",
    "lines": "a\r\ncoget: done\n  run: sh",
    "next line": "a\x85b\u2028c\u2029d",
    "cursor": "a\rb\x08c\x0bd\x0ce\x7ff",
    "bidi": "\u202egnp.exe\u2066x\u061c",
    "no width": "a\u200bb\ufeffc\u00add",
    "surrogate": "\ud800",
    "markup": "[red]x[/red][link=http://evil.example]y[/link][/]",
}
WORDS = "".join(f"<{word}>" for word in HOSTILE.values())
OWN = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\[\?25[hl]|\r(?=\n)|\n|\r(?=\x1b)")
"""Sequences that rich sends to a terminal. Hostile ones follow a '<' and are searched before these are removed."""
TASK = {
    "id": WORDS,
    "label": WORDS,
    "kind": "TRANSFER",
    "status": "FAILED",
    "source": {"id": "1", "name": WORDS},
    "destination": {"id": "2", "name": WORDS},
    "requested_at": 1.0,
    "started_at": 2.0,
    "completed_at": 3.0,
    **dict.fromkeys(("files", "files_transferred", "files_skipped", "faults", "bytes", "bytes_transferred"), 1),
    "work": {"total": 1, "succeeded": 1, "skipped": 0, "failed": 0},
    "rate": 1.0,
    "seconds_left": 1.0,
    "paused": WORDS,
    "waits": WORDS,
    "error": {"code": WORDS, "message": WORDS},
}
RUNNING = {**TASK, "status": "ACTIVE", "completed_at": None, "error": None}
DONE = {**TASK, "status": "SUCCEEDED", "error": None}
ERROR = {"error": {"code": WORDS, "message": WORDS, "remedy": WORDS}}


def check(output: bytes) -> None:
    """Check that no terminal sequence came from outside, and no character that hides or reorders text."""
    text = output.decode()
    assert not re.search(r"<\x1b|\x1b\]", text)
    assert [char for char in set(OWN.sub("", text)) if not char.isprintable()] == []


def run(home: Path, *words: str, **environment: str) -> tuple[int, str]:
    """Run coget at a terminal with and without redrawing; return its status and what the terminals showed."""
    status, output = at_terminal([COGET, *words], home, **environment)
    check(output)
    dumb, plain = at_terminal([COGET, *words], home, TERM="dumb", COLUMNS="9999", **environment)
    check(plain)
    assert not re.search(rb"^coget: done|^ *run: sh", plain, re.MULTILINE)  # forged lines
    assert status == dumb
    return dumb, plain.decode()


class Broker(BaseHTTPRequestHandler):
    """A broker whose answers are hostile text; paths that `answers` lacks get an error."""

    answers: dict[str, object]
    status = 409

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer()

    def _answer(self) -> None:
        path = self.path.partition("?")[0].removeprefix("/broker/v1/")
        answer = self.answers.get(path)
        body = answer if isinstance(answer, bytes) else json.dumps(ERROR if answer is None else answer).encode()
        self.send_response_only(self.status if answer is None else 200, "no\x1b[41m")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Turn logging off."""


@pytest.fixture
def broker() -> Iterator[tuple[str, type[Broker]]]:
    handler = type("Told", (Broker,), {"answers": {}})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", handler
        server.shutdown()
        thread.join()


def event(document: object) -> bytes:
    return b"event: progress\nid: 1\ndata: " + json.dumps(document).encode() + b"\n\n"


REPLICA = {
    "url": "ftp://h.example/x",
    "rank": 1,
    "measured": True,
    "rate": 1.0,
    "p10": 1.0,
    "p90": 2.0,
    "reason": WORDS,
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("words", "path", "answer", "status"),
    [
        (["search"], "datasets", {"datasets": [{"name": WORDS, "size": 1, "checksums": {}}], "next": None}, 0),
        (["tasks"], "tasks", {"tasks": [RUNNING], "next": None}, 0),
        (["tasks", "cancel", "0" * 36], f"tasks/{'0' * 36}/cancel", TASK, 0),
        (["watch", "0" * 36], f"tasks/{'0' * 36}/progress", event(RUNNING) + event(DONE), 0),
        (["watch", "0" * 36], f"tasks/{'0' * 36}/progress", event(TASK), 5),
        (["submit", "a:/x", "b:/y"], "collections", {"collections": WORDS}, 3),
        (["search"], "datasets", WORDS.encode(errors="replace"), 3),
        (["search"], "datasets", {"datasets": WORDS}, 3),
    ],
)
def test_a_brokers_words(broker, tmp_path, words, path, answer, status):
    url, handler = broker
    handler.answers[path] = answer
    assert run(tmp_path, *words, COGET_BROKER=url)[0] == status


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 409, 422, 500, 503])
def test_a_brokers_refusals(broker, tmp_path, status):
    url, handler = broker
    handler.status = status
    ended, output = run(tmp_path, "search", COGET_BROKER=url)
    assert ended in (2, 3, 7)
    assert "\\x1b" in output or status == 302


def test_a_submitted_tasks_id(broker, tmp_path):
    url, handler = broker
    each = {"kind": "gridftp"}
    handler.answers |= {
        "collections": {"collections": [{"id": "1", "name": "a", **each}, {"id": "2", "name": "b", **each}]},
        "tasks": {"id": WORDS, "new": True},
    }
    status, output = run(tmp_path, "submit", "a:/x", "b:/y", COGET_BROKER=url)
    assert (status, output.count("\n")) == (0, 1)


def test_json_stays_json(broker, tmp_path):
    url, handler = broker
    handler.answers["tasks"] = {"tasks": [RUNNING], "next": None}
    _, output = run(tmp_path, "tasks", "--json", COGET_BROKER=url)
    assert json.loads(output)[0]["label"] == WORDS


def test_a_warning_of_the_outbox(broker, tmp_path):
    url, _ = broker
    (tmp_path / "x").write_bytes(b"x")
    name = tmp_path / "bad\x1b]0;t\x07.report"
    history = tmp_path / "h.sqlite.outbox"
    history.mkdir()
    (history / name.name).write_text("{")
    run(tmp_path, f"{tmp_path / 'x'}", "-o", "y", COGET_BROKER=url, COGET_HISTORY=str(tmp_path / "h.sqlite"))


@pytest.mark.parametrize("verb", ["GREETING", "PASS", "SIZE", "FEAT"])
async def test_a_servers_reply(tmp_path, verb):
    code = {"GREETING": b"500", "FEAT": b"211"}.get(verb, b"550")
    line = code + b" " + WORDS.replace("\n", "").encode("utf-8", "surrogatepass") + b"\r\n"
    async with ftp_server(**{verb: line}) as url:
        await asyncio.to_thread(run, tmp_path, "doctor" if verb == "FEAT" else "get", url)


def metalink(name: str, url: str) -> str:
    return (
        '<?xml version="1.0"?><metalink xmlns="urn:ietf:params:xml:ns:metalink">'
        f'<file name="{name}"><size>1</size><url>{url}</url></file></metalink>'
    )


@pytest.mark.parametrize("hostile", ["\u202e", "\x85\u2028", "\u200b\ufeff", "&#x9b;41m", "[red]x[/red]"])
def test_a_metalinks_words(tmp_path, hostile):
    (tmp_path / "a.meta4").write_text(metalink(f"x{hostile}y", "ftp://127.0.0.1:9/x"))
    (tmp_path / "b.meta4").write_text(metalink("x", f"ftp://127.0.0.1:9/{hostile}"))
    (tmp_path / "c.meta4").write_text(metalink("x", f"file:///{hostile}"))
    for document in "abc":
        run(tmp_path, f"{document}.meta4")


def test_a_history_that_another_made(tmp_path):
    path = tmp_path / "h.sqlite"
    (tmp_path / "x.csv").write_text("source,start,bytes,end\nftp://h.example,1,20000000,2\n")
    assert run(tmp_path, "history", "import", "x.csv", COGET_HISTORY=str(path))[0] == 0
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("UPDATE transfers SET source = ?", (WORDS.replace("\ud800", ""),)).rowcount == 1
        connection.commit()
    assert "\\x1b[41m" in run(tmp_path, "history", COGET_HISTORY=str(path))[1]


def test_words_on_the_command_line(tmp_path):
    word = WORDS.replace("\ud800", "\udcff")  # valid in a file name
    assert run(tmp_path, word)[0] == 2
    assert run(tmp_path, f"--{word}")[0] == 2
    assert run(tmp_path, "get", f"ftp://127.0.0.1:9/{word}")[0] in (2, 3)
