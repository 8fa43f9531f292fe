import errno
import socket

import pytest

from coalloc.depot.daemon.legs import ENOUGH, MOST_LEGS, MOST_NAMES, MOST_PLACES, LegBook
from coalloc.depot.protocol.addresses import HostPort
from coalloc.util.tcp_info import SentState, sent_state_of
from tests.support.waiting import wait_until

FTP, DEPOT = HostPort("ftp.example", 2811), HostPort("depot-b.example", 4000)
NUMERIC = HostPort("192.0.2.1", 2811)
UNKNOWN = {"connect_seconds": None, "round_trip": None, "loss": None, "rate": None}


def taken(book: LegBook) -> dict[HostPort, dict[str, object]]:
    return {leg: use.document() for leg, use in book.take().items()}


def state(round_trip: float | None = None, sent: int = 0, sent_again: int = 0, rate: float | None = None) -> SentState:
    return SentState(round_trip, sent, sent_again, rate)


def test_a_report_has_what_happened_since_the_last_one():
    book = LegBook()
    for seconds in (0.3, 0.1, 0.2):
        book.connected(NUMERIC, NUMERIC.host, seconds)
    book.failed(NUMERIC, NUMERIC.host, ConnectionRefusedError())
    book.ended(NUMERIC, NUMERIC.host, state(0.2, ENOUGH, ENOUGH // 4, 1e6))
    book.ended(NUMERIC, NUMERIC.host, state(0.1, ENOUGH, 0, 2e6))
    times = {"connect_seconds": 0.2, "round_trip": 0.1}
    assert taken(book) == {NUMERIC: {"sessions": 3, "failures": 1, **times, "loss": 0.125, "rate": 2e6}}
    assert taken(book) == {}


def test_a_lack_of_file_descriptors_is_no_failure_of_a_leg():
    book = LegBook()
    book.failed(NUMERIC, NUMERIC.host, OSError(errno.EMFILE, "Too many open files"))
    assert taken(book) == {}


def test_few_sent_bytes_show_neither_losses_nor_a_rate():
    book = LegBook()
    book.connected(NUMERIC, NUMERIC.host, 0.1)
    book.ended(NUMERIC, NUMERIC.host, state(None, ENOUGH - 1, 100, 1e6))
    assert taken(book) == {NUMERIC: {"sessions": 1, "failures": 0, **UNKNOWN, "connect_seconds": 0.1}}


def test_a_numeric_hop_is_reported_by_the_name_that_the_broker_gave_it():
    book = LegBook()
    book.name({FTP: ["192.0.2.1", "2001:db8::1"]}, [])
    book.connected(NUMERIC, "192.0.2.1", 0.1)
    book.connected(HostPort("2001:db8::1", 2811), "2001:db8::1", 0.1)
    assert {leg: use["sessions"] for leg, use in taken(book).items()} == {FTP: 2}


def test_data_connections_of_a_named_server_count_for_round_trips_but_not_as_connections():
    book, data = LegBook(), HostPort("192.0.2.1", 50123)
    book.name({FTP: ["192.0.2.1"]}, [])
    book.connected(data, "192.0.2.1", 9)
    book.failed(data, "192.0.2.1", TimeoutError())
    book.ended(data, "192.0.2.1", state(0.1))
    assert taken(book) == {FTP: {"sessions": 0, "failures": 0, **UNKNOWN, "round_trip": 0.1}}


def test_bytes_that_are_sent_back_to_a_depot_show_the_losses_of_the_leg_to_it():
    book = LegBook()
    book.name({FTP: ["192.0.2.1"], DEPOT: ["192.0.2.2"]}, [DEPOT])
    for client in ("192.0.2.1", "::ffff:192.0.2.2", "192.0.2.3"):
        book.sent_back(client, state(0.1, ENOUGH, ENOUGH // 2))
    ((leg, use),) = taken(book).items()
    assert (leg, use["loss"]) == (DEPOT, 0.5)


def test_two_depots_at_one_address_are_not_mistaken_for_each_other():
    book, other = LegBook(), HostPort("depot-c.example", 4001)
    book.name({DEPOT: ["192.0.2.2"], other: ["192.0.2.2"]}, [DEPOT, other])
    book.sent_back("192.0.2.2", state(0.1))
    assert taken(book) == {}


def test_the_number_of_legs_is_limited_and_the_busy_ones_stay():
    book = LegBook()
    for _ in range(2):
        book.connected(NUMERIC, NUMERIC.host, 0.1)
    for port in range(1, 3 * MOST_LEGS):
        book.connected(HostPort("192.0.2.9", port), "192.0.2.9", 0.1)
    legs = book.take()
    assert len(legs) == MOST_LEGS
    assert NUMERIC in legs
    for port in range(1, 3 * MOST_LEGS):
        book.failed(HostPort("192.0.2.8", port), "192.0.2.8", TimeoutError())
    book.restore(legs)
    assert len(restored := book.take()) == MOST_LEGS
    assert NUMERIC in restored


def test_the_number_of_names_is_limited():
    book = LegBook()
    for number in range(MOST_NAMES + 10):
        book.name({HostPort(f"h{number}.example", 21): []}, [])
    for port in range(1, 100):
        book.name({FTP._replace(port=port): []}, [])
    assert len(book._named.all) == MOST_NAMES
    assert len(book._named.all[FTP.host]) == MOST_PLACES


def test_measurements_that_could_not_be_reported_are_reported_later():
    book = LegBook()
    book.connected(NUMERIC, NUMERIC.host, 0.1)
    book.restore(book.take())
    assert taken(book)[NUMERIC]["sessions"] == 1


def test_the_kernel_reports_sent_bytes_and_round_trips():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.create_connection(listener.getsockname())
        server, _ = listener.accept()
        with client, server:
            client.sendall(bytes(100_000))
            received = 0
            while received < 100_000:
                received += len(server.recv(1 << 16))
            found = wait_until(lambda: (known := sent_state_of(client)).round_trip and known)
            assert found.sent >= 100_000
            assert found.sent_again <= found.sent
            assert sent_state_of(server).sent == 0


def test_other_sockets_have_no_such_state():
    one, other = socket.socketpair()
    with one, other, pytest.raises(OSError, match=r"."):
        sent_state_of(one)
