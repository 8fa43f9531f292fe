"""Real depots, with stock clients and our own, on the loopback interface."""

import asyncio
import logging
import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from coalloc.depot import DepotRoute, create_connection, open_connection
from coalloc.depot.client import relay
from coalloc.depot.daemon.forwarding import ForwardingTable, NextHop
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import MAGIC, Answer
from coalloc.depot.route import DepotTicket
from coalloc.depot.tickets import Ticket, key_of, sign
from coalloc.errors import UsageError
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE, wait_until

SECRET = "0123456789abcdef"
CONTENT = os.urandom(3 << 20)


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Nginx]:
    """A web server with a file."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "file").write_bytes(CONTENT)
    server = Nginx(root, tmp_path / "nginx")
    yield server
    server.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., list[RunningDepot]]]:
    """A function that runs depots with these options, until the end of the test."""
    stack = []

    def start(*options: tuple[str, ...], limit: int | None = None) -> list[RunningDepot]:
        made = depots(tmp_path / f"run-{len(stack)}", *options, limit=limit)
        (tmp_path / f"run-{len(stack)}").mkdir()
        stack.append(made)
        return made.__enter__()

    yield start
    for each in stack:
        each.__exit__(None, None, None)


@pytest.fixture
def secret(tmp_path: Path) -> tuple[str, ...]:
    """Options for a depot that needs tickets, and may connect to this machine."""
    (tmp_path / "secret").write_text(SECRET)
    return ("--secret-file", str(tmp_path / "secret"), *LOOPBACK)


def curl(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["curl", "-sS", *words], capture_output=True, timeout=PATIENCE)


def url(web: Nginx) -> str:
    return f"http://127.0.0.1:{web.port}/file"


def ticket(**changed: object) -> str:
    known = Ticket("id", "ann", "depot", (DestinationPattern.parse("127.0.0.0/8"),), int(time.time()) + 600, 10**9, 99)
    return sign(known._replace(**changed), SECRET.encode())


def with_ticket(depot: RunningDepot, text: str) -> DepotRoute:
    return DepotRoute((depot.place,), tickets={depot.place: owned(text)})


def owned(text: str) -> DepotTicket:
    return DepotTicket(text, key_of(text, SECRET.encode()))


def ask(route: DepotRoute | str, to: HostPort, timeout: float = PATIENCE) -> bytes:
    """Return the file that a web server sends over a route."""
    request = b"GET /file HTTP/1.0\r\n\r\n"
    with create_connection(to, timeout, route=route, first=request) as sock:
        sock.settimeout(PATIENCE)
        whole = bytearray()
        while data := sock.recv(1 << 16):
            whole += data
    return bytes(whole).partition(b"\r\n\r\n")[2]


def place(web: Nginx) -> HostPort:
    return HostPort("127.0.0.1", web.port)


@pytest.mark.parametrize("proxy", ["socks5", "socks5h", "http"])
def test_curl_fetches_over_a_depot(web, run, proxy: str):
    (depot,) = run(())
    done = curl("--proxy", f"{proxy}://{depot.place}", "--proxytunnel", url(web))
    assert done.stdout == CONTENT, done.stderr
    line = depot.wait_for_line(end="closed")
    assert line["down"] > len(CONTENT)
    assert (line["client"], line["destination"]) == ("127.0.0.1", f"127.0.0.1:{web.port}")


def test_aria2_fetches_by_ftp_over_a_depot(gridftp_server, run, tmp_path):
    (depot,) = run(())
    (gridftp_server.root / "file").write_bytes(CONTENT)
    words = ["aria2c", "-q", "--all-proxy", f"http://{depot.place}", "--proxy-method=tunnel", "-d", str(tmp_path)]
    source = f"ftp://127.0.0.1:{gridftp_server.port}/file"
    subprocess.run([*words, source], check=True, timeout=PATIENCE)
    assert (tmp_path / "file").read_bytes() == CONTENT
    wait_until(lambda: len([line for line in depot.lines if line.get("end")]) >= 2)  # for control and for data


def test_globus_url_copy_fetches_over_a_depot(gridftp_server, run, tmp_path):
    (depot,) = run(())
    (gridftp_server.root / "file").write_bytes(CONTENT)
    conf = tmp_path / "proxychains.conf"
    conf.write_text(f"strict_chain\nquiet_mode\n[ProxyList]\nsocks5 127.0.0.1 {depot.place.port}\n")
    words = ["proxychains4", "-f", str(conf), "globus-url-copy"]
    target = tmp_path / "target"
    command = [*words, gridftp_server.url("file"), f"file://{target}"]
    subprocess.run(command, check=True, timeout=PATIENCE, capture_output=True)
    assert target.read_bytes() == CONTENT
    wait_until(lambda: len([line for line in depot.lines if line.get("end")]) == 2)


def test_a_strict_route_goes_over_each_depot(web, run):
    three = run(LOOPBACK, LOOPBACK, LOOPBACK)
    route = DepotRoute(tuple(each.place for each in three))
    assert ask(route, place(web)) == CONTENT
    ended = [each.wait_for_line(end="closed") for each in three]
    assert len({line["session"] for line in ended}) == 1
    assert {line["down"] > len(CONTENT) for line in ended} == {True}


async def test_the_time_of_each_leg_is_known(web, run):
    one, two = run(LOOPBACK, LOOPBACK)
    loop = asyncio.get_running_loop()

    async def connect(depot: HostPort) -> socket.socket:
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, depot)
        return sock

    sock, legs = await relay(DepotRoute((one.place, two.place)), place(web), connect)
    sock.close()
    assert len(legs) == 2
    assert min(legs) > 0


@pytest.mark.parametrize("hop", [0, 1, 2])
@pytest.mark.parametrize("how", ["killed", "refuses"])
def test_a_route_that_fails_names_the_hop_and_the_direct_way_is_taken(web, run, caplog, hop: int, how: str):
    refusing = ("--destinations", "192.0.2.0/24")
    three = run(*[refusing if (how, number) == ("refuses", hop) else LOOPBACK for number in range(3)])
    if how == "killed":
        three[hop].stop(signal.SIGKILL)
    route = DepotRoute(tuple(each.place for each in three))
    with caplog.at_level(logging.WARNING):
        assert ask(route, place(web)) == CONTENT
    assert "directly" in caplog.text
    named = hop - 1 if how == "killed" and hop else hop
    assert f"depot {three[named].place}: " in caplog.text
    assert str(three[hop].place) in caplog.text


def test_a_paused_depot_costs_the_time_limit(web, run, caplog):
    (depot,) = run(())
    depot.process.send_signal(signal.SIGSTOP)
    with caplog.at_level(logging.WARNING):
        assert ask(DepotRoute((depot.place,)), place(web), timeout=0.5) == CONTENT
    assert f"depot {depot.place}" in caplog.text or "no answer in time" in caplog.text
    depot.process.send_signal(signal.SIGCONT)


async def test_streams_of_asyncio(web, run):
    (depot,) = run(())
    request = b"GET /file HTTP/1.0\r\n\r\n"
    reader, writer = await open_connection("127.0.0.1", web.port, route=str(depot.place), first=request)
    whole = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert whole.endswith(CONTENT)
    await asyncio.to_thread(depot.wait_for_line, end="closed")


async def test_first_bytes_are_encrypted(run, grid, tmp_path):
    (tmp_path / "file").write_bytes(CONTENT)
    (depot,) = run(())
    server = Nginx(tmp_path, tmp_path / "tls", certificate=(grid.localhost.certificate, grid.localhost.key))
    context = ssl.create_default_context(cafile=grid.authority.certificate)
    request = b"GET /file HTTP/1.0\r\n\r\n"
    with closing(server):
        for route in (str(depot.place), None):
            reader, writer = await open_connection("localhost", server.port, route=route, ssl=context, first=request)
            assert (await reader.read()).endswith(CONTENT)
            writer.close()
            await writer.wait_closed()


def test_loose_route_follows_the_table(web, run, tmp_path):
    (last,) = run(LOOPBACK)
    table = tmp_path / "table"
    table.write_text(f'[[next]]\ndestinations = ["127.0.0.0/8:{web.port}"]\ndepot = "{last.place}"\n')
    (first,) = run(("--table", str(table), "--name", "first"))
    assert curl("--proxy", f"socks5h://{first.place}", url(web)).stdout == CONTENT
    assert ask(DepotRoute((first.place,), loose=True), place(web)) == CONTENT
    assert ask(DepotRoute((first.place,)), place(web)) == CONTENT
    last.wait_for_line(end="closed")
    wait_until(lambda: len([line for line in first.lines if line.get("end")]) == 3)
    assert len([line for line in last.lines if line.get("end")]) == 2  # a strict route has no more hops


def test_a_table_that_becomes_invalid_stays_in_force_as_it_was(web, run, tmp_path):
    (last,) = run(LOOPBACK)
    table = tmp_path / "table"
    table.write_text(f'[[next]]\ndestinations = ["127.0.0.0/8"]\ndepot = "{last.place}"\n')
    (first,) = run(("--table", str(table)))
    table.write_text("[[next]]\n")
    assert curl("--proxy", f"socks5h://{first.place}", url(web)).stdout == CONTENT
    assert last.wait_for_line(end="closed")
    assert f"invalid table {table}" in first.errors.read_text()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("next = 3", "'next' is not [[next]]"),
        ("[next]\n", "'next' is not [[next]]"),
        ("[[nxt]]\n", "'nxt' is not [[next]]"),
        ("[[next]]\n", "an entry needs destinations"),
        ('[[next]]\ndestinations = "a.example"\ndepot = "b.example"\n', "destinations, which are a list"),
        ('[[next]]\ndestinations = ["a.example"]\ndepot = "b.example"\nkey = "00"\n', "must be given together"),
        ('[[next]]\ndestinations = ["a.example:x"]\ndepot = "b.example"\n', "'a.example:x'"),
        ("no TOML", "at line 1"),
    ],
)
def test_an_invalid_table_is_described(tmp_path, text: str, why: str):
    table = tmp_path / "table"
    table.write_text(text)
    with pytest.raises(UsageError) as error:
        ForwardingTable(table)
    assert f"invalid table {table}: " in error.value.message
    assert why in error.value.message
    assert "[[next]]" in error.value.remedy


async def test_a_name_in_the_table_covers_the_addresses_of_its_host(tmp_path):
    table = tmp_path / "table"
    table.write_text('[[next]]\ndestinations = ["localhost:2811"]\ndepot = "b.example"\n')
    known, hop = ForwardingTable(table), NextHop(HostPort("b.example", 4000))
    assert await known.next_hop(HostPort("localhost", 2811), ["127.0.0.1"]) == hop
    assert await known.next_hop(HostPort("127.0.0.1", 2811), ["127.0.0.1"]) == hop
    assert await known.next_hop(HostPort("127.0.0.1", 2812), ["127.0.0.1"]) is None
    assert await known.next_hop(HostPort("127.0.0.2", 2811), ["127.0.0.2"]) is None


def test_a_loop_of_loose_routes_is_refused(web, run, tmp_path):
    tables = [tmp_path / "one", tmp_path / "two"]
    for table in tables:
        table.write_text("")
    one, two = run(*(("--table", str(table), "--name", table.name) for table in tables))
    for table, other in zip(tables, (two, one), strict=True):
        table.write_text(f'[[next]]\ndestinations = ["127.0.0.0/8"]\ndepot = "{other.place}"\n')
    assert b"508" in curl("--proxytunnel", "--proxy", f"http://{one.place}", url(web)).stderr
    assert one.wait_for_line(refused="loop")


def test_tickets_open_the_depot_they_are_for(web, run, secret):
    (depot,) = run(secret)
    to = place(web)
    assert ask(with_ticket(depot, ticket()), to) == CONTENT
    assert depot.wait_for_line(end="closed")["user"] == "ann"
    proxy = f"socks5h://ann:{ticket(client='127.0.0.1')}@{depot.place}"
    assert curl("--proxy", proxy, url(web)).stdout == CONTENT
    login = f"ann:{ticket(client='127.0.0.1')}"
    words = ["--proxy", f"http://{depot.place}", "--proxytunnel", "--proxy-user", login]
    assert curl(*words, url(web)).stdout == CONTENT


@pytest.mark.parametrize(
    "changed",
    [
        {"depot": "other"},
        {"expires": int(time.time()) - 1},
        {"client": "192.0.2.1"},
        {"destinations": (DestinationPattern.parse("192.0.2.0/24"),)},
        {"destinations": (DestinationPattern.parse("127.0.0.0/8:1"),)},
    ],
)
def test_other_tickets_open_nothing(web, run, secret, changed):
    (depot,) = run(secret)
    assert refusal(with_ticket(depot, ticket(**changed)), place(web)).code in ("ticket", "denied")
    proxy = f"socks5h://ann:{ticket(**({'client': '127.0.0.1'} | changed))}@{depot.place}"
    done = curl("--proxy", proxy, url(web))
    assert done.returncode
    assert done.stdout == b""


def refusal(route: DepotRoute, to: HostPort, data: bytes | None = None) -> DepotFailure:
    """Return the failure in a depot's answer."""
    with socket.create_connection(route.depots[0], PATIENCE) as sock:
        sock.sendall(data or route.header(to, time.time()).encode())
        answer = received_answer(sock)
    assert answer.failure is not None
    return answer.failure


def received_answer(sock: socket.socket) -> Answer:
    data = b""
    while missing := Answer.missing(data):
        more = sock.recv(missing)
        assert more, "the depot closed the connection"
        data += more
    return Answer.decode(data)


def test_a_header_that_was_overheard_opens_nothing(web, run, secret):
    (depot,) = run(secret)
    route = with_ticket(depot, ticket())
    header = route.header(place(web), time.time()).encode()
    with socket.create_connection(depot.place, PATIENCE) as sock:
        sock.sendall(header)
        assert received_answer(sock).failure is None
    assert "used before" in refusal(route, place(web), header).message
    altered = header.replace(f":{web.port}".encode(), f":{web.port ^ 1}".encode())
    assert "proof" in refusal(route, place(web), altered).message
    clear = curl("--proxy", f"socks5h://ann:{ticket()}@{depot.place}", url(web))
    assert clear.returncode


def test_a_header_that_was_overheard_takes_no_short_cut(web, run, secret):
    one, two = run((*secret, "--name", "one"), (*secret, "--name", "two"))
    tickets = {one.place: owned(ticket(depot="one")), two.place: owned(ticket(depot="two"))}
    route = DepotRoute((one.place, two.place), tickets=tickets)
    header = route.header(place(web), time.time())
    assert "left out" in refusal(DepotRoute((two.place,)), place(web), header.forwarded(None).encode()).message
    assert "left out" in refusal(DepotRoute((two.place,)), place(web), header.forwarded(b"guessed").encode()).message
    assert ask(route, place(web)) == CONTENT
    assert two.wait_for_line(end="closed")["user"] == "ann"


def test_a_ticket_is_used_up(web, run, secret):
    (depot,) = run(secret)
    two = ticket(id="two", sessions=2)
    for _ in range(2):
        assert ask(with_ticket(depot, two), place(web)) == CONTENT
    assert "used up" in refusal(with_ticket(depot, two), place(web)).message
    few = with_ticket(depot, ticket(id="few", bytes=1 << 20))
    with pytest.raises(ConnectionResetError):
        ask(few, place(web))
    assert "used up" in refusal(few, place(web)).message


def test_first_bytes_are_counted(run, secret, echo):
    (depot,) = run(secret)
    route = with_ticket(depot, ticket(bytes=10))
    with create_connection(echo.place, PATIENCE, route=route, first=b"12345678") as client, closing(echo.accept()):
        client.send(b"90")
        client.send(b"more")
        with pytest.raises(ConnectionResetError):
            received(client)
    assert depot.wait_for_line(end="limit")["up"] > 10
    with create_connection(echo.place, PATIENCE, route=with_ticket(depot, ticket(id="b")), first=b"12345678") as client:
        client.shutdown(socket.SHUT_WR)
        with closing(echo.accept()) as server:
            assert received(server) == b"12345678"
    assert depot.wait_for_line(end="closed")["up"] == 8


def test_without_options_no_other_machine_is_reached(run):
    (depot,) = run(())
    for to in ("192.0.2.1:80", "10.0.0.1:80", "169.254.169.254:80", "[::ffff:10.0.0.1]:80"):
        assert refusal(DepotRoute((depot.place,)), HostPort.parse(to)).code == "denied"


def test_names_and_notations_of_this_machine_are_refused_where_it_is_not_allowed(run):
    (depot,) = run(("--destinations", "0.0.0.0/0:1-10"))
    for to in ("127.0.0.1:80", "localhost:80", "127.1:80", "0x7f.1:80", "0.0.0.0:80", "[::1]:80", "[::ffff:7f00:1]:80"):
        assert refusal(DepotRoute((depot.place,)), HostPort.parse(to)).code in ("denied", "unknown_host")


def received(sock: socket.socket) -> bytes:
    """Return all bytes up to the end of the stream."""
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


class Echo:
    """A server that takes one connection; the test decides what it does."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.place = HostPort(*self.listener.getsockname())

    def accept(self) -> socket.socket:
        self.listener.settimeout(PATIENCE)
        sock, _ = self.listener.accept()
        sock.settimeout(PATIENCE)
        return sock


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.listener.close()


@pytest.mark.parametrize("unread", [0, 1 << 20])
def test_a_killed_depot_is_a_reset_at_both_ends(run, echo, unread: int):
    (depot,) = run(())
    with create_connection(echo.place, PATIENCE, route=str(depot.place)) as client, closing(echo.accept()) as server:
        server.sendall(b"some")
        assert client.recv(10) == b"some"
        server.sendall(bytes(unread))
        client.sendall(bytes(unread))
        depot.stop(signal.SIGKILL)
        for sock in (client, server):
            with pytest.raises(ConnectionResetError):
                received(sock)


def test_the_end_of_each_direction_is_carried_over(run, echo):
    three = run(LOOPBACK, LOOPBACK, LOOPBACK)
    route = DepotRoute(tuple(each.place for each in three))
    with create_connection(echo.place, PATIENCE, route=route) as client, closing(echo.accept()) as server:
        client.sendall(b"question")
        client.shutdown(socket.SHUT_WR)
        assert server.recv(100) + server.recv(100) == b"question"
        server.sendall(b"answer")
        assert client.recv(100) == b"answer"
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.close()
        with pytest.raises(ConnectionResetError):
            client.recv(100)
    assert [each.wait_for_line(end="reset")["up"] for each in three] == [8, 8, 8]


@pytest.mark.parametrize("buffer", [0, 1 << 22])
def test_first_bytes_arrive_before_anything_that_follows(run, echo, buffer: int):
    two = run(LOOPBACK, LOOPBACK)
    route = DepotRoute(tuple(each.place for each in two), buffer=buffer)
    with create_connection(echo.place, PATIENCE, route=route, first=b"first") as client:
        server = echo.accept()
        client.sendall(b" second")
        client.shutdown(socket.SHUT_WR)
        with closing(server):
            assert received(server) == b"first second"


def test_on_sigterm_sessions_end_by_themselves(run, echo):
    (depot,) = run(())
    with create_connection(echo.place, PATIENCE, route=str(depot.place)) as client, closing(echo.accept()) as server:
        depot.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not accepts(depot.place))
        server.sendall(b"late")
        assert client.recv(10) == b"late"
        client.shutdown(socket.SHUT_WR)
        server.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        assert server.recv(1) == b""
    assert depot.process.wait(PATIENCE) == 0


def test_sessions_that_do_not_end_are_reset(run, echo):
    (depot,) = run(("--drain", "0.2"))
    with create_connection(echo.place, PATIENCE, route=str(depot.place)) as client, closing(echo.accept()):
        assert depot.stop() == 0
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    assert depot.wait_for_line(end="drained")
    assert "waiting up to 0.2 s for sessions to end: 1" in depot.errors.read_text()


def accepts(to: HostPort) -> bool:
    try:
        socket.create_connection(to, PATIENCE).close()
    except (ConnectionRefusedError, ConnectionResetError):  # reset: the listening socket was closed meanwhile
        return False
    return True


def test_idle_sessions_are_reset(run, echo):
    (depot,) = run(("--idle", "1"))
    client = create_connection(echo.place, PATIENCE, route=str(depot.place))
    with client, closing(echo.accept()), pytest.raises(ConnectionResetError):
        client.recv(1)
    assert depot.wait_for_line(end="idle")


def test_exhausted_descriptors_are_survived(web, run):
    (depot,) = run((), limit=100)
    held = [socket.create_connection(depot.place, PATIENCE) for _ in range(200)]
    for each in held:
        each.close()
    wait_until(lambda: curl("--proxy", f"socks5h://{depot.place}", url(web)).stdout == CONTENT)
    assert depot.process.poll() is None


def test_a_flood_of_one_client_is_limited(run, echo):
    (depot,) = run(("--sessions-per-user", "5"))
    half_open = [socket.create_connection(depot.place, PATIENCE) for _ in range(5)]
    for each in half_open:
        each.sendall(MAGIC)
    wait_until(lambda: state_of_another(depot) == "closed")
    for each in half_open:
        each.close()
    wait_until(lambda: state_of_another(depot) == "waits")


def test_a_client_without_a_ticket_gets_a_quarter_of_few_descriptors(run, echo):
    (depot,) = run(LOOPBACK, limit=64 + 6 * 16)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(socket.create_connection(depot.place, PATIENCE))
        wait_until(lambda: state_of_another(depot) == "closed")
        assert state_of_another(depot, "127.0.0.2") == "waits"
    with ExitStack() as stack:
        header = DepotRoute((depot.place,)).header(echo.place, time.time())
        for number in range(5):
            sock = stack.enter_context(socket.create_connection(depot.place, PATIENCE, ("127.0.0.3", 0)))
            sock.sendall(header.encode())
            failure = received_answer(sock).failure
            assert (failure and failure.code) == (None if number < 4 else "busy")


def state_of_another(depot: RunningDepot, address: str = "127.0.0.1") -> str:
    """Return "closed" if the depot closes a new connection from an address at once, or "waits"."""
    with socket.create_connection(depot.place, PATIENCE, (address, 0)) as sock:
        sock.settimeout(0.2)
        try:
            return "closed" if sock.recv(1) == b"" else "data"
        except TimeoutError:
            return "waits"
        except ConnectionResetError:
            return "closed"


def test_a_session_counts_once_before_it_is_connected(run, echo):
    (depot,) = run((*LOOPBACK, "--sessions", "3"))
    silent = Echo()
    with ExitStack() as stack:
        stack.callback(silent.listener.close)
        for address in ("127.0.0.2", "127.0.0.3"):  # each may have a part of the sessions
            waiting = stack.enter_context(socket.create_connection(depot.place, PATIENCE, (address, 0)))
            waiting.sendall(DepotRoute((depot.place, silent.place)).header(echo.place, time.time()).encode())
            stack.enter_context(silent.accept())  # and give no answer
        with socket.create_connection(depot.place, PATIENCE) as sock:
            sock.sendall(DepotRoute((depot.place,)).header(echo.place, time.time()).encode())
            assert received_answer(sock).failure is None


def test_metrics_are_for_this_machine(web, run):
    (depot,) = run(())
    curl("--proxy", f"socks5h://{depot.place}", url(web))
    depot.wait_for_line(end="closed")
    text = curl(f"http://{depot.place}/metrics").stdout.decode()
    assert 'coget_depot_ended_total{end="closed"} 1' in text
    assert "coget_depot_sessions 0" in text


def test_a_request_with_a_surrogate_is_refused(run, web):
    (depot,) = run(())
    route = DepotRoute((depot.place,))
    data = route._replace(congestion="\ud800").header(place(web), time.time()).encode()
    assert refusal(route, place(web), data).code == "malformed"


def test_invalid_requests_are_refused_and_logged(run):
    (depot,) = run(())
    for data in (b"\0\0\0", b"SSH-2.0-x\r\n\r\n", MAGIC + b"\xff" * 100, b"\x04\x01", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.create_connection(depot.place, PATIENCE) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            received(sock)
    assert len([line for line in depot.lines if line["refused"] in ("malformed", "unsupported")]) == 5


def test_the_audit_log_is_opened_again_after_a_rotation(web, run):
    (depot,) = run(())
    depot.audit.rename(depot.audit.with_name("rotated"))
    depot.process.send_signal(signal.SIGHUP)
    wait_until(depot.audit.exists)
    curl("--proxy", f"socks5h://{depot.place}", url(web))
    depot.wait_for_line(end="closed")


def test_the_audit_log_stays_open_if_it_cannot_be_opened_again(web, run):
    (depot,) = run(())
    kept = depot.audit.with_name("rotated")
    depot.audit.rename(kept)
    depot.audit.mkdir()
    depot.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the earlier file stays in use" in depot.errors.read_text())
    curl("--proxy", f"socks5h://{depot.place}", url(web))
    wait_until(lambda: '"end": "closed"' in kept.read_text())


def test_a_full_disk_under_the_audit_log_disturbs_no_session(web, run, echo):
    (depot,) = run(("--audit", "/dev/full", "--idle", "1"))
    assert curl("--proxy", f"socks5h://{depot.place}", url(web)).stdout == CONTENT
    assert refusal(DepotRoute((depot.place,)), HostPort("192.0.2.1", 80)).code == "denied"
    for _ in range(2):
        client = create_connection(echo.place, PATIENCE, route=str(depot.place))
        with client, closing(echo.accept()), pytest.raises(ConnectionResetError):
            client.recv(1)
    assert depot.errors.read_text().count("missing in the audit log") == 1


def test_a_directory_of_the_audit_log_that_is_gone_changes_nothing(web, run, tmp_path):
    folder = tmp_path / "log"
    folder.mkdir()
    (depot,) = run(("--audit", str(folder / "audit")))
    folder.rename(tmp_path / "moved")
    depot.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "the earlier file stays in use" in depot.errors.read_text())
    assert curl("--proxy", f"socks5h://{depot.place}", url(web)).stdout == CONTENT
    wait_until((tmp_path / "moved" / "audit").read_text)


def test_many_sessions_at_once(run, echo, web):
    (depot,) = run(())
    results: list[bytes] = []
    threads = [
        threading.Thread(target=lambda: results.append(ask(DepotRoute((depot.place,)), place(web)))) for _ in range(40)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert results == [CONTENT] * 40
