"""Ports that a real depot opens for copies between servers: who may connect, and how everything ends."""

import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from coalloc.depot import DepotRoute
from coalloc.depot.protocol.addresses import DestinationPattern, HostPort
from coalloc.depot.protocol.session_header import Answer, PortRequest
from coalloc.depot.route import DepotTicket
from coalloc.depot.tickets import Ticket, key_of, sign
from tests.support.depot import LOOPBACK, RunningDepot, depots
from tests.support.listening import reserved
from tests.support.waiting import PATIENCE, wait_until

SECRET = "0123456789abcdef"
PEER = "127.0.0.5"
"""Address of the host that may connect; others connect from 127.0.0.1."""
CONTENT = os.urandom(3 << 20)
RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., RunningDepot]]:
    """A function that runs a depot with these options, until the end of the test."""
    stack = []

    def start(*options: str, limit: int | None = None) -> RunningDepot:
        stack.append(depots(tmp_path / f"run-{len(stack)}", options, limit=limit))
        (tmp_path / f"run-{len(stack) - 1}").mkdir()
        return stack[-1].__enter__()[0]

    yield start
    for each in stack:
        each.__exit__(None, None, None)


@pytest.fixture
def secret(tmp_path: Path) -> tuple[str, ...]:
    """Options for a depot that needs tickets, and may connect to this machine."""
    (tmp_path / "secret").write_text(SECRET)
    return ("--secret-file", str(tmp_path / "secret"), *LOOPBACK)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listener to which depots connect."""
    with socket.create_server(("127.0.0.2", 0)) as listener:
        listener.settimeout(PATIENCE)
        yield listener


@pytest.fixture
def two_ports() -> Iterator[str]:
    """Two neighbouring ports for the depot, which the kernel gives to no other process: `FIRST-LAST`."""
    while True:
        with reserved("127.0.0.1") as one, socket.socket() as two:
            port = one.getsockname()[1]
            try:
                two.bind(("127.0.0.1", port + 1))  # without SO_REUSEADDR, so that no other process has reserved it
            except (OSError, OverflowError):
                continue
            two.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            yield f"{port}-{port + 1}"
            return


def with_ticket(depot: RunningDepot, /, **changed: object) -> DepotRoute:
    known = Ticket("id", "ann", "depot", (DestinationPattern.parse("127.0.0.0/8"),), int(time.time()) + 600, 10**9, 99)
    text = sign(known._replace(**changed), SECRET.encode())
    return DepotRoute((depot.place,), tickets={depot.place: DepotTicket(text, key_of(text, SECRET.encode()))})


def ask(
    depot: RunningDepot, to: HostPort, route: DepotRoute | None = None, connections: int = 2, peer: str = PEER
) -> tuple[socket.socket, Answer]:
    """Ask a depot for a port; return the session, and the depot's answer."""
    wanted = PortRequest(peer, connections)
    sock = socket.create_connection(depot.place, PATIENCE)
    sock.sendall((route or DepotRoute((depot.place,))).header(to, time.time(), wanted).encode())
    return sock, answer_on(sock)


def answer_on(sock: socket.socket) -> Answer:
    data = b""
    while missing := Answer.missing(data):
        more = sock.recv(missing)
        assert more, "the depot closed the session"
        data += more
    return Answer.decode(data)


def refusal(depot: RunningDepot, to: HostPort, route: DepotRoute | None = None, peer: str = PEER) -> str:
    sock, answer = ask(depot, to, route, peer=peer)
    sock.close()
    assert answer.failure, "a port was opened"
    return answer.failure.code


def place(server: socket.socket) -> HostPort:
    return HostPort(*server.getsockname()[:2])


def connected(depot: RunningDepot, answer: Answer, address: str = PEER) -> socket.socket:
    """Return a connection to the port from an address."""
    return socket.create_connection((depot.place.host, answer.port), PATIENCE, source_address=(address, 0))


def accepted(server: socket.socket) -> socket.socket:
    sock, _ = server.accept()
    sock.settimeout(PATIENCE)
    return sock


def received(sock: socket.socket) -> bytes:
    """Return all bytes up to the end of the stream."""
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def is_reset(sock: socket.socket) -> bool:
    """Return whether a connection ends with a reset."""
    try:
        received(sock)
    except ConnectionResetError:
        return True
    return False


def gets_nothing(depot: RunningDepot, answer: Answer, address: str = PEER) -> bool:
    """Return whether a connection from an address is reset."""
    try:
        with connected(depot, answer, address) as sock:
            return is_reset(sock)
    except ConnectionResetError:  # before it was made, for the client
        return True


def is_closed(depot: RunningDepot, answer: Answer) -> bool:
    """Return whether nobody listens at the port. It must be one of `two_ports`, or another process may."""
    with suppress(ConnectionResetError):
        try:
            connected(depot, answer, "127.0.0.1").close()
        except ConnectionRefusedError:
            return True
    return False


def test_the_peer_reaches_the_destination_over_the_port_byte_for_byte(run, server):
    depot = run(*LOOPBACK)
    session, answer = ask(depot, place(server))
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        inner.sendall(b"hello")
        assert peer.recv(10) == b"hello"
        peer.sendall(b"x" + CONTENT)
        peer.shutdown(socket.SHUT_WR)
        assert received(inner) == b"x" + CONTENT
        inner.shutdown(socket.SHUT_WR)
        assert received(peer) == b""
        line = depot.wait_for_line(end="closed")
        assert (line["up"], line["down"]) == (len(CONTENT) + 1, 5)
        assert (line["port"], line["peer"], line["destination"]) == (answer.port, PEER, str(place(server)))
    ended = depot.wait_for_line(strangers=0)
    assert (ended["session"], ended["end"]) == (line["session"], "closed")


def test_stranger_gets_nothing_and_does_not_disturb_the_port(run, server):
    depot = run(*LOOPBACK)
    session, answer = ask(depot, place(server), connections=1)
    with closing(session):
        for _ in range(300):
            assert gets_nothing(depot, answer, "127.0.0.1")
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()
        server.settimeout(PATIENCE)
        with connected(depot, answer) as peer, closing(accepted(server)) as inner:
            peer.sendall(b"mine")
            assert inner.recv(10) == b"mine"
        assert depot.metric('coget_depot_refused_total{reason="stranger"}') == 300
    assert depot.wait_for_line(strangers=300)


def test_connections_beyond_the_wanted_number_are_closed(run, server):
    depot = run(*LOOPBACK)
    session, answer = ask(depot, place(server), connections=2)
    with closing(session), connected(depot, answer) as one, connected(depot, answer) as two:
        inner = [accepted(server), accepted(server)]
        assert gets_nothing(depot, answer)
        for sock, end in zip((one, two), inner, strict=True):
            sock.sendall(b"on")
            assert end.recv(10) == b"on"
            end.close()
            sock.close()
        wait_until(lambda: depot.metric("coget_depot_sessions") == 0)
        with connected(depot, answer) as later, closing(accepted(server)) as end:
            later.sendall(b"again")
            assert end.recv(10) == b"again"


def test_a_reset_is_carried_over_in_both_directions(run, server):
    depot = run(*LOOPBACK)
    session, answer = ask(depot, place(server))
    with closing(session):
        for dies in (0, 1):
            ends = connected(depot, answer), accepted(server)
            ends[dies].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            ends[dies].close()
            assert is_reset(ends[1 - dies])
            ends[1 - dies].close()


def test_refusal_by_the_destination_is_a_reset_and_is_reported_to_the_client_once(run):
    depot = run(*LOOPBACK)
    with reserved("127.0.0.2") as refusing:
        session, answer = ask(depot, place(refusing))
        with closing(session):
            assert gets_nothing(depot, answer)
            assert answer_on(session).failure.code == "refused"
            assert gets_nothing(depot, answer)  # told once: what nobody reads must not pile up
            session.setblocking(False)
            with pytest.raises(BlockingIOError):
                session.recv(1)


@pytest.mark.parametrize("how", ["closed", "reset", "killed"])
def test_a_client_that_is_gone_takes_its_port_and_its_connections_with_it(run, server, two_ports, how: str):
    depot = run(*LOOPBACK, "--data-ports", two_ports)
    session, answer = ask(depot, place(server))
    holder = hold(session) if how == "killed" else None
    with connected(depot, answer) as peer, closing(accepted(server)) as inner:
        peer.sendall(b"begun")
        assert inner.recv(10) == b"begun"
        if holder:
            session.close()
            holder.kill()
            holder.wait()
        if how == "reset":
            session.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        session.close()
        assert is_reset(peer)
        assert is_reset(inner)
    assert is_closed(depot, answer)
    wait_until(lambda: depot.metric("coget_depot_ports") == 0)
    assert depot.metric("coget_depot_sessions") == 0


def hold(session: socket.socket) -> "subprocess.Popen[bytes]":
    """Return a process that keeps a session open until it is killed."""
    words = [sys.executable, "-c", "import time; time.sleep(1000)"]
    return subprocess.Popen(words, pass_fds=[session.fileno()])


def test_bytes_after_the_request_close_the_port(run, server, two_ports):
    depot = run(*LOOPBACK, "--data-ports", two_ports)
    session, answer = ask(depot, place(server))
    with closing(session):
        session.sendall(b"x")
        assert session.recv(1) == b""
        assert is_closed(depot, answer)


def test_a_killed_depot_is_a_reset_at_both_ends(run, server):
    depot = run(*LOOPBACK)
    session, answer = ask(depot, place(server))
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        peer.sendall(b"begun")
        assert inner.recv(10) == b"begun"
        depot.stop(signal.SIGKILL)
        assert is_reset(peer)
        assert is_reset(inner)


def test_only_the_address_that_the_client_reached_listens(run, server):
    depot = run(*LOOPBACK, "--listen", "0.0.0.0:0")
    session, answer = ask(RunningAt(depot), place(server))
    with closing(session), pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.9", answer.port), PATIENCE)


class RunningAt:
    """A depot at an address of its own choice."""

    def __init__(self, depot: RunningDepot) -> None:
        self.place = HostPort("127.0.0.1", depot.place.port)


def test_data_ports_are_those_of_the_option(run, server, two_ports):
    depot = run(*LOOPBACK, "--data-ports", two_ports)
    held = [ask(depot, place(server)) for _ in range(2)]
    first = int(two_ports.partition("-")[0])
    assert {answer.port for _, answer in held} == {first, first + 1}
    assert refusal(depot, place(server)) == "busy"
    with connected(depot, held[0][1]) as peer, closing(accepted(server)) as inner:
        inner.shutdown(socket.SHUT_WR)  # the port waits in TIME_WAIT afterwards, and can be used nevertheless
        assert received(peer) == b""
    held[0][0].close()
    depot.wait_for_line(port=held[0][1].port, strangers=0)
    held[0] = ask(depot, place(server))
    assert held[0][1].port is not None
    for session, _ in held:
        session.close()


def test_without_permission_no_port_is_opened(run, server, secret):
    to = place(server)
    assert refusal(run(*secret), to) == "ticket"
    assert refusal(run("--clients", "192.0.2.0/24", *LOOPBACK), to) == "denied"
    assert refusal(run("--destinations", "192.0.2.0/24"), to) == "denied"
    assert refusal(run(), HostPort("10.0.0.1", 2811)) == "denied"
    assert refusal(run(), HostPort("169.254.169.254", 80)) == "denied"


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
def test_other_tickets_open_no_port(run, server, secret, changed):
    depot = run(*secret)
    assert refusal(depot, place(server), with_ticket(depot, **changed)) in ("ticket", "denied")
    assert depot.metric("coget_depot_ports") == 0


def test_a_private_destination_needs_its_network_in_the_settings(run, server, tmp_path):
    (tmp_path / "secret").write_text(SECRET)
    depot = run("--secret-file", str(tmp_path / "secret"))
    assert refusal(depot, place(server), with_ticket(depot)) == "denied"


def test_a_ticket_opens_no_more_than_its_sessions(run, server, secret):
    depot = run(*secret)
    route = with_ticket(depot, sessions=2)
    session, answer = ask(depot, place(server), route)
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        assert gets_nothing(depot, answer)
        assert answer_on(session).failure.code == "ticket"
        peer.sendall(b"stays")
        assert inner.recv(10) == b"stays"
        assert refusal(depot, place(server), route) == "ticket"


def test_a_ticket_relays_nothing_more_after_its_time(run, server, secret):
    depot = run(*secret)
    for seconds in (2, 20):  # a slow machine may need the longer one to open the port in time
        expires = int(time.time()) + seconds
        session, answer = ask(depot, place(server), with_ticket(depot, expires=expires))
        if answer.port:
            break
        session.close()
        assert "expired" in answer.failure.message
    wait_until(lambda: time.time() > expires)
    with closing(session):
        assert gets_nothing(depot, answer)
        assert "expired" in answer_on(session).failure.message


def test_the_bytes_of_a_ticket_count_over_ports_too(run, server, secret):
    depot = run(*secret)
    session, answer = ask(depot, place(server), with_ticket(depot, bytes=1 << 20))
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        with suppress(OSError):
            peer.sendall(CONTENT)
        assert is_reset(inner)
    assert depot.wait_for_line(end="limit", user="ann")


def test_ports_count_among_the_sessions_of_a_user(run, server):
    depot = run(*LOOPBACK, "--sessions-per-user", "2")
    one, first = ask(depot, place(server))
    two, _ = ask(depot, place(server))
    assert refusal(depot, place(server)) == "busy"
    assert gets_nothing(depot, first)
    two.close()
    depot.wait_for_line(end="closed")
    with connected(depot, first) as peer, closing(accepted(server)) as inner:
        inner.sendall(b"on")
        assert peer.recv(10) == b"on"
    one.close()


def test_a_request_that_was_overheard_opens_no_port(run, server, secret):
    depot = run(*secret)
    header = with_ticket(depot).header(place(server), time.time(), PortRequest(PEER, 1)).encode()
    answers = []
    for _ in range(2):
        with socket.create_connection(depot.place, PATIENCE) as sock:
            sock.sendall(header)
            answers.append(answer_on(sock))
    assert answers[0].port
    assert "used before" in answers[1].failure.message
    other = header.replace(PEER.encode(), b"127.0.0.6")
    with socket.create_connection(depot.place, PATIENCE) as sock:
        sock.sendall(other)
        assert "proof" in answer_on(sock).failure.message


@pytest.mark.parametrize("changed", [{"loose": True}, {"buffer": 1 << 20}, {"depots": 2}])
def test_a_port_needs_a_plain_route_of_one_depot(run, server, changed):
    depot = run(*LOOPBACK)
    changed = dict(changed)  # a repeated run has the same one
    depots = (depot.place, HostPort("127.0.0.1", 4000))[: changed.pop("depots", 1)]
    route = DepotRoute(depots, **changed)
    request = route.header(place(server), time.time(), PortRequest(PEER, 1))
    if route.buffer:  # clients send none
        changed = request.request._replace(buffer=route.buffer)
        request = request._replace(raw=changed.encode())
    with socket.create_connection(depot.place, PATIENCE) as sock:
        sock.sendall(request.encode())
        assert answer_on(sock).failure.code == "unsupported"


def test_first_bytes_and_another_family_are_refused(run, server):
    depot = run(*LOOPBACK)
    header = DepotRoute((depot.place,)).header(place(server), time.time(), PortRequest(PEER, 1)).encode()
    with socket.create_connection(depot.place, PATIENCE) as sock:
        sock.sendall(header + b"first")
        assert answer_on(sock).failure.code == "unsupported"
    assert refusal(depot, place(server), peer="2001:db8::1") == "unsupported"


def test_over_ipv6(run):
    depot = run("--destinations", "[::1/128]", "--listen", "[::1]:0")
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as listener:
        session, answer = ask(depot, place(listener), peer="::1")
        with closing(session), connected(depot, answer, "::1") as peer, closing(listener.accept()[0]) as inner:
            peer.sendall(b"six")
            assert inner.recv(10) == b"six"


def test_an_idle_port_is_closed_but_not_one_in_use(run, server, two_ports):
    depot = run(*LOOPBACK, "--idle", "1", "--data-ports", two_ports)
    session, answer = ask(depot, place(server))
    with closing(session):
        assert received(session) == b""
        assert is_closed(depot, answer)
    assert depot.wait_for_line(end="idle", strangers=0)


def test_on_sigterm_a_port_without_connections_closes(run, server):
    depot = run(*LOOPBACK)
    session, _ = ask(depot, place(server))
    with closing(session):
        assert depot.stop() == 0
        assert received(session) == b""
    assert depot.wait_for_line(end="drained", strangers=0)


def test_on_sigterm_relayed_connections_end_by_themselves(run, server, two_ports):
    depot = run(*LOOPBACK, "--data-ports", two_ports)
    session, answer = ask(depot, place(server))
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        depot.process.send_signal(signal.SIGTERM)
        wait_until(lambda: is_closed(depot, answer))
        peer.sendall(b"late")
        assert inner.recv(10) == b"late"
        for end in (peer, inner):
            end.shutdown(socket.SHUT_WR)
        assert received(peer) == received(inner) == b""
        assert depot.process.wait(PATIENCE) == 0


def test_relayed_connections_that_do_not_end_are_reset(run, server):
    depot = run(*LOOPBACK, "--drain", "0.2")
    session, answer = ask(depot, place(server))
    with closing(session), connected(depot, answer) as peer, closing(accepted(server)) as inner:
        assert depot.stop() == 0
        assert is_reset(peer)
        assert is_reset(inner)
    assert depot.wait_for_line(end="drained", up=0)


def test_many_ports_come_and_go_and_nothing_is_left(run, server):
    depot = run(*LOOPBACK)
    before = files(depot)
    for _ in range(3):
        held = [ask(depot, place(server)) for _ in range(50)]
        for _, answer in held:
            connected(depot, answer).close()
        for session, _ in held:
            session.close()
    wait_until(lambda: depot.metric("coget_depot_ports") == 0)
    wait_until(lambda: files(depot) <= before + 2 * 64)  # pipes are kept for later use


def test_exhausted_descriptors_are_survived(run, server):
    depot = run(*LOOPBACK, limit=160)
    session, answer = ask(depot, place(server), connections=200)
    with closing(session):
        held = [socket.create_connection(depot.place, PATIENCE) for _ in range(100)]
        held += [made for made in (attempt(depot, answer) for _ in range(200)) if made]
        for each in held:
            each.close()
        server.settimeout(0.2)
        wait_until(lambda: all_closed(server) and depot.metric("coget_depot_sessions") == 0)
        wait_until(lambda: depot.metric("coget_depot_pending") == 0)
        server.settimeout(PATIENCE)
        with connected(depot, answer) as peer, closing(accepted(server)) as inner:
            peer.sendall(b"on")
            assert inner.recv(10) == b"on"


def all_closed(server: socket.socket) -> bool:
    """Accept and close all connections that wait."""
    with suppress(TimeoutError):
        while True:
            server.accept()[0].close()
    return True


def attempt(depot: RunningDepot, answer: Answer) -> socket.socket | None:
    with suppress(ConnectionResetError):
        return connected(depot, answer)
    return None


def files(depot: RunningDepot) -> int:
    return len(list(Path(f"/proc/{depot.process.pid}/fd").iterdir()))
