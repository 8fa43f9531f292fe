"""Signed URLs: their keys are in no output, no shared file, and no report to a broker."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import quote, urlsplit

import httpx
import pytest

from tests.support.broker import BrokerProcess, broker_in
from tests.support.coget import coget, patient
from tests.support.waiting import PATIENCE

KEY = "Zk9/hush+Tq7=="
"""Keys of the user's URL and of redirect targets."""
SPELT = quote(KEY, safe="")
QUERY = f"X-Amz-Date=20261122&X-Amz-Signature={SPELT}&v=2#part-{SPELT}"
FORMS = (KEY, SPELT, SPELT.lower(), quote(SPELT), "hush+Tq7", "hush%2BTq7", base64.b64encode(KEY.encode()).decode())
"""Strings that must not appear."""
CONTENT = b"0123456789" * 150_000


class Signed(BaseHTTPRequestHandler):
    """A server that gives its file for the key, or fails as the path says; its answers repeat the request."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        way = urlsplit(self.path).path.split("/")[1]
        self.close_connection = True
        if SPELT not in self.path:
            self._say("403 no signature")
        elif way.isdecimal():
            self._say(
                f"{way} no: {self.path} {KEY} http://127.0.0.1{self.path}", f"Retry-After: {KEY}" * (way == "418")
            )
        elif way == "reset":
            pass
        elif way == "garbage":
            self.wfile.write(f"{self.path} {KEY}\r\n\r\n".encode())
        elif way == "encoded":
            self._say("200 OK", f"Content-Encoding: {KEY}")
        elif way == "range":
            self._say("206 Partial", f"Content-Range: {self.path}")
        elif way == "led":
            self._say("302 Found", f"Location: /404/x?token={SPELT}")
        elif way == "nowhere":
            self._say("302 Found", f"Location: HTTP://[{self.path}?token={SPELT}")
        elif way == "scheme":
            self._say("302 Found", f"Location: file:///x?token={SPELT}")
        else:
            self._give(len(CONTENT) // (2 if way == "short" else 1))

    def _say(self, status: str, *headers: str) -> None:
        lines = [f"HTTP/1.1 {status}", "Content-Length: 0", "Connection: close", *filter(None, headers), "", ""]
        self.wfile.write("\r\n".join(lines).encode())

    def _give(self, whole: int) -> None:
        asked = self.headers.get("Range", "").removeprefix("bytes=").partition("-")
        start, end = (int(asked[0]), int(asked[2]) + 1) if asked[1] else (0, len(CONTENT))
        place = f"Content-Range: bytes {start}-{end - 1}/{len(CONTENT)}\r\n" if asked[1] else ""
        status = "206 Partial" if asked[1] else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {end - start}\r\n{place}Connection: close\r\n\r\n"
        body = b"" if self.command == "HEAD" else CONTENT[start : min(end, whole)]
        self.wfile.write(head.encode() + body)

    def log_message(self, *_: object) -> None:
        pass


WAYS = (
    *("403", "404", "410", "418", "500", "501", "503"),
    *("reset", "garbage", "encoded", "range", "led", "nowhere", "scheme", "short", "good"),
)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    running = ThreadingHTTPServer(("127.0.0.1", 0), Signed)
    thread = threading.Thread(target=running.serve_forever)
    thread.start()
    yield f"127.0.0.1:{running.server_port}"
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with broker_in(folder) as running:
        yield running
        for page in ("", "/downloads", "/decisions", "/transfers", "/failures"):
            _clean(running.client().get(f"/reports{page}").text)
        _clean(running.log())
    for file in folder.rglob("*"):
        if file.is_file():
            _clean(file.read_bytes().decode("latin-1"))


def _clean(output: str) -> None:
    assert [form for form in FORMS if form in output] == [], output


def _environment(broker: BrokerProcess) -> dict[str, str]:
    named = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": broker.token, "COGET_SITE": "HERE"}
    return {**named, **patient(broker.folder)}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_no_output_has_the_key(server, broker, tmp_path, way):
    url = f"HTTP://{server}/{way}/file?{QUERY}"
    other = f"http://{server}/404/file?{QUERY}"
    results = [
        coget(words, tmp_path, **_environment(broker)) for words in (["--json", url, other], ["doctor", "--json", url])
    ]
    assert results[0].returncode == (0 if way == "good" else results[0].returncode or 1)
    for result in results:
        _clean(result.stdout + result.stderr)
        assert "/file?..." in result.stdout
        json.loads(result.stdout)
    for file in tmp_path.rglob("*"):  # history and outbox; a journal knows its URLs
        if file.is_file() and ".coget" not in str(file.relative_to(tmp_path)):
            _clean(file.read_bytes().decode("latin-1"))


@pytest.mark.parametrize("words", [["plan"], ["get"], ["register", "lab:x"], ["collect", "--to", "."], ["probe"]])
def test_no_command_shows_the_key(server, broker, tmp_path, words):
    for url in (
        f"http://{server}/404/f?{QUERY}",
        f"//{server}/f?{QUERY}",
        f"{server}/f?k={SPELT}",
        f"bad url?k={SPELT}",
    ):
        result = coget([*words, url], tmp_path, **_environment(broker))
        assert result.returncode
        _clean(result.stdout + result.stderr)


def test_reported_errors_contain_the_cause_but_no_key(broker):
    transfers = broker.client().get("/broker/v1/transfers").json()["transfers"]
    assert any("404" in (each["error"] or "") for each in transfers)
    _clean(json.dumps(transfers))


def test_an_endless_query_is_not_looked_through_for_long(server, tmp_path):
    result = coget([f"http://{server}/404/file?{'a=b&' * 10_000}k={SPELT}"], tmp_path)
    _clean(result.stdout + result.stderr)


def test_the_server_gives_its_file_only_with_the_key(server):
    """The server gives its file, and only with the key."""
    assert httpx.get(f"http://{server}/good/file", timeout=PATIENCE).status_code == 403
    assert httpx.get(f"http://{server}/good/file?{QUERY}", timeout=PATIENCE).content == CONTENT
