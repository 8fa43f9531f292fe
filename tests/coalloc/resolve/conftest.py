"""A small HTTP server with scripted answers, which can be all catalogues."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.support.catalogues import CONTENT

Answer = tuple[int, str, bytes]
"""Status, content type (or the target of a redirect) and body."""


def _handler(answers: dict[str, Answer], head: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, kind, body = answers.get(self.path, (404, "text/plain", b"none"))
            self.send_response(status)
            self.send_header("Location" if 300 <= status < 400 else "Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with contextlib.suppress(ConnectionError):
                self.wfile.write(b"" if self.command == "HEAD" else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    if head:
        setattr(Handler, "do_HEAD", Handler.do_GET)  # noqa: B010 - a method that is not always there
    return Handler


class ScriptedCatalogue:
    """All catalogues at one server, to which calls add documents."""

    def __init__(self, url: str, answers: dict[str, Answer]) -> None:
        self.url = url
        self._answers = answers

    def __call__(self, documents: Mapping[str, Any]) -> str:
        """Add JSON documents, or bytes, by path; return the URL."""
        for path, each in documents.items():
            body = each if isinstance(each, bytes) else json.dumps(each).encode()
            self._answers[path] = (200, "application/json", body)
        return self.url


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """`serve(answers, head=True)` starts a server on loopback and gives its URL; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(answers: dict[str, Answer], head: bool = True) -> str:
            server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), _handler(answers, head)))
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_port}"

        yield start


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.delenv("COGET_BROKER", raising=False)
    (tmp_path / "config/coget").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


@pytest.fixture
def catalogue(home, serve):
    """`catalogue(answers)` adds JSON documents to a server that has the file /x and all catalogues; its URL."""
    answers = {"/x": (200, "text/plain", CONTENT), "/bad": (200, "text/plain", CONTENT[::-1])}
    url = serve(answers)
    (home / "config/coget/config.toml").write_text(
        f'[names]\ndoi = "{url}"\nesgf = "{url}/s"\nidentifiers = "{url}"\n[names.drs]\n"drs.example" = "{url}/drs"\n'
    )

    return ScriptedCatalogue(url, answers)
