"""The ledger: it refuses to lose a byte, and always knows the holders of each piece."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.collect.methods.actions import Drop, Piece, Send
from coalloc.collect.methods.ledger import IllegalActionError, Ledger
from coalloc.planner.network import Demand, File

DEMAND = Demand((File("a", 30, ("A",), ("D",)), File("b", 30, ("A", "B"), ("D", "E"))))
FILES = {file.name: file for file in DEMAND.files}
PIECES = [Piece(name, start, start + 10) for name in "ab" for start in (0, 10, 20)]


def test_sending_a_piece_that_a_host_does_not_hold_is_refused():
    with pytest.raises(IllegalActionError, match="R does not hold"):
        Ledger(DEMAND).send(Send(1, "R", "D", PIECES[0]))


def test_dropping_a_piece_that_is_being_sent_is_refused():
    ledger = Ledger(DEMAND)
    ledger.send(Send(1, "A", "R", PIECES[0]))
    ledger.arrived(1)
    ledger.send(Send(2, "R", "D", PIECES[0]))
    assert ledger.sends("R", PIECES[0])
    with pytest.raises(IllegalActionError, match="is being sent from R"):
        ledger.drop(Drop("R", PIECES[0]))
    ledger.arrived(2)
    ledger.drop(Drop("R", PIECES[0]))
    assert ledger.occupied("R") == 0


def test_files_that_the_destination_holds_count_as_delivered():
    ledger = Ledger(Demand((File("a", 30, ("A", "D"), ("D",)), File("empty", 0, ("D",), ("D",)))))
    assert ledger.done
    assert ledger.missing("a", "D") == []


@given(st.integers(0, 10**6))
def test_ledger_counts_occupied_and_missing_bytes_after_random_events(seed: int):
    chance, ledger = Random(seed), Ledger(DEMAND)
    delivered: set[tuple[str, Piece]] = set()
    for hop in range(200):
        send = Send(hop, chance.choice("ABRSDE"), chance.choice("RSDE"), chance.choice(PIECES))
        if ledger.holds(send.source, send.piece) and send.source != send.sink and not wanted(send) & delivered:
            ledger.send(send)
        for other in list(ledger.running):
            if chance.random() < 0.2:
                if chance.random() < 0.7:
                    delivered |= wanted(ledger.arrived(other))
                else:
                    ledger.ended(other)
        for host in "RS":
            for piece in list(ledger.staged[host]):
                if chance.random() < 0.1 and not ledger.sends(host, piece):
                    ledger.drop(Drop(host, piece))
            coming = {each.piece for each in ledger.running.values() if each.sink == host}
            assert ledger.occupied(host) == sum(piece.size for piece in ledger.staged[host] | coming)
        missing = {(to, piece) for piece in PIECES for to in ("D", "E") if (to, piece) not in delivered}
        assert ledger.done == (not {(to, piece) for to, piece in missing if (to, piece.file) != ("E", "a")})


def wanted(send: Send) -> set[tuple[str, Piece]]:
    """Return the bytes that it delivers."""
    return {(send.sink, send.piece)} if send.sink in FILES[send.piece.file].destinations else set()
