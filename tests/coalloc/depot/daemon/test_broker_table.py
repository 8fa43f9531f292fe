from coalloc.depot.daemon.broker_table import AGAIN, BrokerTable, ChosenDepot
from coalloc.depot.daemon.forwarding import NextHop
from coalloc.depot.protocol.addresses import HostPort

B = HostPort("depot-b.example", 4000)
CHOSEN = ChosenDepot("depot-b", NextHop(B), ())
FTP, NUMERIC = HostPort("ftp.example", 2811), HostPort("192.0.2.1", 50123)


def table(seconds: float = 600) -> BrokerTable:
    made = BrokerTable()
    made.replace({"ftp.example": CHOSEN, "192.0.2.1": CHOSEN}, seconds)
    return made


def test_a_server_is_found_by_its_name_and_by_its_addresses():
    assert table().choose(FTP, ["192.0.2.7"], ()) == CHOSEN
    assert table().choose(NUMERIC, ["192.0.2.1"], ()) == CHOSEN
    assert table().choose(HostPort("192.0.2.2", 21), ["192.0.2.2"], ()) is None


def test_another_name_of_a_server_is_not_found_as_the_ticket_does_not_permit_it():
    assert table().choose(HostPort("alias.example", 21), ["192.0.2.1"], ()) is None


def test_a_table_expires():
    assert table(0).choose(FTP, [], ()) is None


def test_a_session_does_not_go_back_to_a_depot_where_it_has_been():
    assert table().choose(FTP, [], ("depot-a", "depot-b")) is None


def test_a_depot_that_failed_is_left_out_for_a_while(monkeypatch):
    made = table()
    made.avoid(B)
    assert made.choose(FTP, [], ()) is None
    made.replace({"ftp.example": CHOSEN}, 600)
    assert made.choose(FTP, [], ()) is None
    monkeypatch.setattr("coalloc.depot.daemon.broker_table.time.monotonic", lambda: made._avoided[B])
    assert AGAIN < 600
    assert made.choose(FTP, [], ()) == CHOSEN
