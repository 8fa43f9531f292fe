"""Submission and watching of tasks, with servers that are no brokers, lose answers, or end their streams early."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from coalloc import api
from coalloc.errors import NothingToFetchFrom, UsageError
from coalloc.model.tasks import TaskView
from tests.support.coget import coget

NUMBER = "5f0c1b3e-8d0a-4b52-9d3c-3b0d6f1f2a77"
TASK = {
    "id": NUMBER,
    "kind": "TRANSFER",
    "status": "ACTIVE",
    "label": None,
    "source": {"id": "1", "name": "one"},
    "destination": {"id": "2", "name": None},
    "requested_at": 1e9,
    "started_at": None,
    "completed_at": None,
    "rate": 0.0,
    "seconds_left": None,
    "paused": None,
    "waits": "",
    "error": None,
    "files": 0,
    "files_transferred": 0,
    "files_skipped": 0,
    "faults": 0,
    "bytes": 0,
    "bytes_transferred": 0,
    "work": {"total": 1, "succeeded": 0, "failed": 0, "skipped": 0},
}
DONE = {**TASK, "status": "SUCCEEDED", "completed_at": 1e9 + 1}


def stream(*events: object) -> bytes:
    """Return an event stream in the broker's format, with any data."""
    return b"".join(f"id: {i}\ndata: {json.dumps(event)}\n\n".encode() for i, event in enumerate(events))


@contextmanager
def stranger(answer: Callable[[BaseHTTPRequestHandler, bytes], bytes | None]) -> Iterator[str]:
    """Start a server with this answer; if it is None, the server closes the connection. Return its address."""

    class Stranger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            reply = answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))
            if reply is not None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(reply)

        do_GET = do_POST

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


NONSENSE = {
    "no JSON": b"data: {\n\n",
    "another shape": stream([1]),
    "a task without anything": stream({}),
    "a status of its own": stream({**TASK, "status": "HAPPY"}),
    "a negative rate": stream({**TASK, "rate": -1}),
    "an endless rate": stream({**TASK, "rate": 1e999}),
    "bytes of a word": stream({**TASK, "bytes": "x"}),
    "ends of a word": stream({**TASK, "source": "x"}),
    "work of a word": stream({**TASK, "work": "x"}),
    "an endless event": b"data: " + b"x" * (3 << 20),
}


@pytest.mark.parametrize("what", NONSENSE)
def test_streams_that_no_broker_sends_are_reported_as_such(what, tmp_path: Path):
    with stranger(lambda *_: NONSENSE[what]) as url:
        result = coget(["watch", NUMBER], tmp_path, COGET_BROKER=url)
    assert (result.returncode, "does not answer like a broker" in result.stderr) == (3, True), result.stderr


async def test_a_stream_that_ends_early_is_asked_for_again_from_where_it_was():
    asked: list[str | None] = []

    def answer(request: BaseHTTPRequestHandler, _: bytes) -> bytes | None:
        asked.append(request.headers["Last-Event-ID"])
        if len(asked) == 2:
            return None
        return stream(TASK) if len(asked) == 1 else b": still there\r\n\r\nevent: end\r\n" + stream(DONE)

    shown: list[TaskView] = []
    with stranger(answer) as url:
        task = await api.watch(NUMBER, shown.append, url)
    assert (task.status, asked) == ("SUCCEEDED", [None, "0", "0"])
    assert [each.phase for each in shown] == ["waiting", "waiting", "done"]
    assert "does not answer" in shown[1].waits


async def test_a_failed_task_is_an_error_with_all_that_is_known():
    failed = {**DONE, "status": "FAILED", "error": {"code": "NO_SPACE", "message": "the disk is full"}}
    with stranger(lambda *_: stream(failed)) as url, pytest.raises(api.TaskFailed, match="NO_SPACE: the disk") as error:
        await api.watch(NUMBER, lambda _: None, url)
    assert error.value.task.document == failed


async def test_a_task_whose_answer_was_lost_is_sent_again_as_the_same():
    sent: list[dict] = []

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> bytes | None:
        if request.path.endswith("/collections"):
            known = [{"id": name, "name": name, "kind": "gridftp"} for name in ("one", "two")]
            return json.dumps({"collections": known}).encode()
        sent.append(json.loads(body))
        return None if len(sent) < 3 else json.dumps({"id": NUMBER, "new": False}).encode()

    wish = api.TaskRequest(("one:/a", "one:~/b", "one:/notes.txt~", "one:/~tmp"), "two:/c/", sync="checksum", label="x")
    with stranger(answer) as url:
        submitted = await api.submit(wish, url)
    assert submitted.id == NUMBER
    assert sent[0] == sent[1] == sent[2]
    assert [(item["source"], item["destination"]) for item in sent[0]["items"]] == [
        *(("/a", "/c/a"), ("~/b", "/c/b")),
        *(("/notes.txt~", "/c/notes.txt~"), ("/~tmp", "/c/~tmp")),
    ]
    assert sent[0]["options"] == {"sync_level": 3}


async def test_the_beginning_of_an_id_has_to_be_of_one_task():
    with stranger(lambda *_: json.dumps({"tasks": [TASK, {**TASK, "id": "5f0c2"}], "next": None}).encode()) as url:
        for beginning, says in (
            ("5f0", "several of your tasks have ids that begin with 5f0"),
            ("6", "none of your tasks has an id that begins"),
        ):
            with pytest.raises(UsageError, match=says):
                await api.cancel(beginning, url)


async def test_unreachable_broker_is_reported_at_once():
    with pytest.raises(NothingToFetchFrom, match="does not answer"):
        await api.watch(NUMBER, lambda _: None, "http://127.0.0.1:9")
