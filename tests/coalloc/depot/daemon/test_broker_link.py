"""Depots with brokers that fail or lie: their sessions go on."""

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from coalloc.depot.client import create_connection
from coalloc.depot.daemon.broker_link import LONGEST, MOST_MEASURED, Instructions
from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.route import DepotRoute
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

CONTENT = os.urandom(1 << 20)
SOME = {"seconds": 600, "table": [], "measure": [], "depots": []}


class FakeBroker:
    """A fake broker that sends the test's answers; a request whose answer is None gets no response.

    :ivar reports: bodies of the reports that it took
    :ivar busy: whether it takes no reports
    """

    def __init__(self) -> None:
        self.answers: dict[str, bytes | None] = {}
        self.reports: list[dict[str, Any]] = []
        self.asked = 0
        self.busy = False
        self.over = Event()
        fake = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                fake.asked += 1
                answer = fake.answers.get(self.path.split("/")[4], b"{}")
                if answer is None:
                    fake.over.wait()
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                error = {"message": "busy\n\x1b[2J" + "y" * 10_000, "remedy": ""}
                answer = json.dumps({"error": error}).encode() if fake.busy else b"{}"
                if not fake.busy:
                    fake.reports.append(json.loads(body))
                self.send_response(503 if fake.busy else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def tell(self, name: str, **changed: object) -> None:
        self.answers[name] = json.dumps(SOME | changed).encode()

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    made = FakeBroker()
    yield made
    made.close()


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Nginx]:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "file").write_bytes(CONTENT)
    server = Nginx(tmp_path / "root", tmp_path / "nginx")
    yield server
    server.close()


@pytest.fixture
def run(tmp_path: Path, broker: FakeBroker) -> Iterator[Callable[..., list[RunningDepot]]]:
    """A function that runs depots of these names, with the broker."""
    (tmp_path / "token").write_text("token\n")
    (tmp_path / "token").chmod(0o600)
    with ExitStack() as stack:

        def start(*names: str, more: tuple[str, ...] = LOOPBACK) -> list[RunningDepot]:
            common = ("--broker", broker.url, "--token-file", str(tmp_path / "token"), *more)
            return stack.enter_context(depots(tmp_path, *((*common, "--name", name) for name in names)))

        yield start


def ask(depot: RunningDepot, web: Nginx) -> bytes:
    """Return the file that comes over a loose route; it must not come directly."""
    before = len(depot.lines)
    route = DepotRoute((depot.place,), loose=True)
    request = b"GET /file HTTP/1.0\r\n\r\n"
    with create_connection(("127.0.0.1", web.port), PATIENCE, route=route, first=request) as sock:
        whole = b"".join(iter(lambda: sock.recv(1 << 16), b""))
    wait_until(lambda: [line for line in depot.lines[before:] if line.get("end") and line["down"] >= len(whole)])
    return whole.partition(b"\r\n\r\n")[2]


def entry(place: HostPort, name: str = "other", **more: object) -> dict[str, Any]:
    depot = {"depot": name, "host": place.host, "port": place.port, "ticket": None, "key": None}
    return {"destination": "127.0.0.1", "next": depot | more}


def place(web: Nginx) -> HostPort:
    return HostPort("127.0.0.1", web.port)


ELSEWHERE = HostPort("192.0.2.1", 4000)
LIES: list[bytes | None] = [
    *(b"", b"no JSON", b"[]", b"{}", b'{"a": ' * 10_000, b" " * (2 << 20), b'{"seconds": 1e999}', None),
    *(json.dumps(SOME | {name: value}).encode() for name, value in (("seconds", -1), ("table", 1), ("measure", [1]))),
    json.dumps(SOME | {"table": [entry(ELSEWHERE, "depot-a")]}).encode(),
    json.dumps(SOME | {"table": [entry(ELSEWHERE, ticket="t1", key="no hex")]}).encode(),
    json.dumps(SOME | {"table": [entry(HostPort("-a b", 4000))]}).encode(),
    json.dumps(SOME | {"table": [entry(HostPort("127.0.0.1", 0))]}).encode(),
]


@pytest.mark.parametrize("answer", LIES, ids=lambda answer: str(answer)[:24])
def test_an_invalid_answer_costs_a_line_in_the_log(web, run, broker, answer: bytes | None):
    broker.answers["depot-a"] = answer
    (depot,) = run("depot-a")
    wait_until(lambda: broker.asked > 2 or (answer is None and broker.asked))
    assert ask(depot, web) == CONTENT
    assert depot.lines[-1]["next"] == str(place(web))
    if answer is not None:
        wait_until(lambda: "failed to refresh the broker's table: " in depot.errors.read_text())
    assert depot.stop() == 0
    assert len(depot.errors.read_text().splitlines()) == (answer is not None)


def test_an_earlier_table_stays_in_force_until_it_expires(web, run, broker):
    broker.tell("depot-b")
    first, second = run("depot-a", "depot-b")
    broker.tell("depot-a", table=[entry(second.place, "depot-b")], seconds=3)
    wait_until(lambda: ask(first, web) == CONTENT and first.lines[-1]["next"] == str(second.place))
    broker.answers["depot-a"] = b"no JSON"
    wait_until(lambda: "failed to refresh" in first.errors.read_text())
    assert ask(first, web) == CONTENT
    wait_until(lambda: ask(first, web) == CONTENT and first.lines[-1]["next"] == str(place(web)))


@pytest.mark.parametrize("kind", ["closed", "silent", "no depot", "itself under another name"])
def test_a_next_depot_that_fails_is_left_out(web, run, broker, kind: str):
    (depot,) = run("depot-a")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        closed = HostPort("127.0.0.1", 1)
        places = {"closed": closed, "silent": HostPort(*silent.getsockname()), "no depot": place(web)}
        broker.tell("depot-a", table=[entry(places.get(kind, depot.place))], measure=["127.0.0.1:1"])
        wait_until(lambda: broker.reports)  # the table is in force before the measurement that is reported
        for _ in range(3):
            assert ask(depot, web) == CONTENT
            assert depot.lines[-1]["next"] == str(place(web))


def test_what_a_user_asks_for_drives_no_depot_away_from_others(web, run, broker, tmp_path):
    (first,) = run("depot-a")
    (tmp_path / "more").mkdir()
    with ExitStack() as stack:
        own = ("--name", "depot-b", "--destinations", f"127.0.0.1/32:{web.port}")
        (second,) = stack.enter_context(depots(tmp_path / "more", own))
        broker.tell("depot-a", table=[entry(second.place, "depot-b")], measure=["127.0.0.1:1"])
        wait_until(lambda: broker.reports)
        other = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        loose = DepotRoute((first.place,), loose=True)
        header = loose.header(place(web), time.time())
        visited = header.request._replace(visited=("x" * 3700,)).encode()  # too long with one more depot
        for data in (
            loose._replace(congestion="nonsense").header(place(web), time.time()).encode(),  # not supported
            loose.header(HostPort(*other.getsockname()), time.time()).encode(),  # denied by the second depot
            header._replace(raw=visited).encode(),
        ):
            with socket.create_connection(first.place, PATIENCE) as sock:
                sock.sendall(data)
                assert sock.recv(1)
            assert ask(first, web) == CONTENT
            whole = [line for line in first.lines if line.get("down", 0) > len(CONTENT)]
            assert whole[-1]["next"] == str(second.place)


def test_a_next_depot_that_this_depot_may_not_reach_is_left_out(web, run, broker):
    (depot,) = run("depot-a", more=("--destinations", f"127.0.0.1/32:{web.port}"))
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.settimeout(0.0)
        forbidden = HostPort(*inner.getsockname())
        broker.tell("depot-a", table=[entry(forbidden)], measure=[str(forbidden), str(place(web))])
        wait_until(lambda: broker.reports)
        assert ask(depot, web) == CONTENT
        assert depot.lines[-1]["next"] == str(place(web))
        with pytest.raises(BlockingIOError):
            inner.accept()
    assert {each["port"] for report in broker.reports for each in report["legs"]} == {web.port}


def test_two_tables_that_lead_to_each_other_make_no_loop(web, run, broker):
    first, second = run("depot-a", "depot-b")
    broker.tell("depot-a", table=[entry(second.place, "depot-b")])
    broker.tell("depot-b", table=[entry(first.place, "depot-a")], measure=[str(place(web))])
    wait_until(lambda: broker.reports)
    wait_until(lambda: ask(first, web) == CONTENT and first.lines[-1]["next"] == str(second.place))
    assert second.wait_for_line(end="closed")["next"] == str(place(web))
    # under false names, the loop is refused where it closes, and the session goes on directly
    before = len(second.lines)
    broker.tell("depot-a", table=[entry(second.place, "x")])
    broker.tell("depot-b", table=[entry(first.place, "y")])
    wait_until(lambda: ask(first, web) == CONTENT and [line for line in first.lines if line.get("refused") == "loop"])
    wait_until(lambda: [line for line in second.lines[before:] if line.get("next") == str(place(web))])


def test_the_admins_table_counts_first(web, run, broker, tmp_path):
    broker.tell("depot-b")
    (second,) = run("depot-b")
    (tmp_path / "table").write_text(f'[[next]]\ndestinations = ["127.0.0.0/8"]\ndepot = "{second.place}"\n')
    broker.tell("depot-a", table=[entry(HostPort("127.0.0.1", 1))], measure=["127.0.0.1:1"])
    (tmp_path / "more").mkdir()
    token = ("--broker", broker.url, "--token-file", str(tmp_path / "token"), *LOOPBACK)
    with depots(tmp_path / "more", (*token, "--name", "depot-a", "--table", str(tmp_path / "table"))) as (first,):
        wait_until(lambda: broker.reports)
        assert ask(first, web) == CONTENT
        assert first.lines[-1]["next"] == str(second.place)


def test_legs_are_reported_once(web, run, broker):
    broker.tell("depot-a", measure=[str(place(web))])
    (depot,) = run("depot-a")
    wait_until(lambda: broker.reports)
    broker.tell("depot-a")
    wait_until(lambda asked=broker.asked: broker.asked > asked + 2)
    broker.reports.clear()
    assert ask(depot, web) == CONTENT
    wait_until(lambda: broker.reports)
    ((leg,),) = (report["legs"] for report in broker.reports)
    assert (leg["host"], leg["port"], leg["sessions"], leg["failures"]) == ("127.0.0.1", web.port, 1, 0)
    assert 0 < leg["connect_seconds"] < PATIENCE
    assert leg["round_trip"] is None or 0 < leg["round_trip"] < PATIENCE  # the kernel may have sent a packet twice
    assert leg["loss"] is leg["rate"] is None  # the depot has received, not sent
    wait_until(lambda asked=broker.asked: broker.asked > asked + 2)
    assert len(broker.reports) == 1


def test_a_report_that_the_broker_did_not_take_is_sent_again(run, broker, web):
    broker.tell("depot-a")
    (depot,) = run("depot-a")
    wait_until(lambda: broker.asked)
    broker.busy = True
    assert ask(depot, web) == CONTENT
    wait_until(lambda: "busy" in depot.errors.read_text())
    (line,) = depot.errors.read_text().splitlines()
    assert line.isprintable()
    assert len(line) < 1000
    assert broker.reports == []
    broker.busy = False
    wait_until(lambda: broker.reports)
    ((leg,),) = (report["legs"] for report in broker.reports)
    assert (leg["port"], leg["sessions"]) == (web.port, 1)


def test_a_broker_that_never_answers_does_not_delay_the_end(run, broker):
    broker.answers["depot-a"] = None
    (depot,) = run("depot-a")
    wait_until(lambda: broker.asked)
    assert depot.stop(signal.SIGTERM) == 0
    assert not broker.over.is_set()


def test_numbers_of_an_answer_are_bounded():
    lists = {"measure": ["127.0.0.1:1"] * 1000, "table": [entry(ELSEWHERE)] * 10_000, "depots": []}
    instructions = Instructions.read(json.dumps(SOME | lists | {"seconds": 1e9}), "depot-a")
    assert (instructions.seconds, len(instructions.measure), len(instructions.table)) == (LONGEST, MOST_MEASURED, 1)
