"""Bytes that can be sent from each host, after any events: no byte is forgotten."""

from math import inf

import pytest

from coalloc.collect.methods.actions import Piece, Send
from coalloc.collect.methods.adaptive.blocks import LEAST, MOST, Stock, piece_size
from coalloc.collect.methods.adaptive.directives import Lot
from coalloc.collect.methods.ledger import Ledger
from coalloc.planner import Demand, File

A, B = Piece("a", 0, 40), Piece("a", 40, 100)


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(Demand((File("a", 100, ("x",), ("t",)), File("b", 60, ("x", "y"), ("t",)))))


@pytest.fixture
def stock(ledger: Ledger) -> Stock:
    stock = Stock(ledger)
    stock.count({})
    return stock


def carry(ledger: Ledger, stock: Stock, hop: int, source: str, sink: str, piece: Piece) -> None:
    ledger.send(Send(hop, source, sink, piece))
    ledger.arrived(hop)
    if sink != "t":
        stock.stage(sink, piece, "t")


@pytest.mark.parametrize(
    ("rate", "left", "seconds", "size"),
    [
        (10e6, 10**9, 10.0, 2_000_000),  # a fifth of a second
        (10e6, 10**9, 1000.0, 5_000_000),  # half a second
        (10e6, 10**9, 160.0, 4_000_000),  # a 400th of all
        (10e6, 8_000_000, 160.0, 1_000_000),  # an eighth of what is left
        (10e6, 100_000, 160.0, 625_000),  # no more than 16 in a second
        (1e3, 10**9, 10.0, LEAST),
        (1e10, 10**12, 10.0, 625_000_000),
    ],
)
def test_pieces_are_as_large_as_a_pair_is_fast(rate, left, seconds, size):
    assert piece_size(rate, left, seconds) == min(size, MOST)


def test_pieces_that_only_one_host_holds_are_cut_first(stock: Stock):
    assert stock.lots() == {Lot(("x",), "", "t"): 100, Lot(("x", "y"), "", "t"): 60}
    assert stock.take("x", "t", 40, MOST) == A
    assert stock.take("x", "t", 40, MOST) == B  # the rest would be too small for a piece
    assert stock.take("x", "t", 20, MOST) == Piece("b", 0, 20)
    assert stock.take("y", "t", 40, MOST) == Piece("b", 20, 60)
    assert not stock.has("x", "t")
    assert not stock


def test_no_piece_is_larger_than_its_next_host_has_room_for(stock: Stock):
    assert stock.take("x", "t", 60, 30) == Piece("a", 0, 30)


def test_staged_pieces_go_first_and_count_with_their_origin(ledger: Ledger, stock: Stock):
    carry(ledger, stock, 1, "x", "y", stock.take("x", "t", 40, MOST))
    assert stock.lots() == {Lot(("x",), "", "t"): 60, Lot(("x",), "y", "t"): 40, Lot(("x", "y"), "", "t"): 60}
    assert stock.backlog == {"y": 40}
    assert stock.next_size("y", "t") == 40
    assert stock.take("y", "t", 1, MOST) == A
    stock.put("y", A, "t")
    assert stock.take("y", "t", 1, MOST) == A


def test_pieces_in_flight_are_not_counted_unless_sent_twice(ledger: Ledger, stock: Stock):
    ledger.send(Send(1, "x", "t", A))
    stock.count({1: "t"})
    assert stock.lots()[Lot(("x",), "", "t")] == 60
    stock.count({})
    assert stock.lots()[Lot(("x",), "", "t")] == 100


def test_pieces_staged_at_a_lost_host_return_to_their_origin(ledger: Ledger, stock: Stock):
    carry(ledger, stock, 1, "x", "z", A)
    ledger.gone("z")
    stock.count({})
    assert stock.lots() == {Lot(("x",), "", "t"): 100, Lot(("x", "y"), "", "t"): 60}


def test_an_origin_that_is_gone_leaves_what_is_staged_and_loses_the_rest(ledger: Ledger, stock: Stock):
    carry(ledger, stock, 1, "x", "z", A)
    ledger.gone("x")
    stock.count({})
    assert stock.lots() == {Lot((), "z", "t"): 40, Lot(("y",), "", "t"): 60, Lot((), "", "t"): 60}
    assert sorted(set(stock.missing())) == [("a", "t"), ("b", "t")]


def test_loss_of_an_origin_keeps_its_staged_pieces(ledger: Ledger, stock: Stock):
    carry(ledger, stock, 1, "x", "z", A)
    carry(ledger, stock, 2, "x", "z", B)
    ledger.gone("x")
    stock.count({})
    assert stock.lots() == {Lot((), "z", "t"): 100, Lot(("y",), "", "t"): 60}


def test_recalled_pieces_are_at_their_origin_again(ledger: Ledger, stock: Stock):
    for hop, piece in enumerate((A, B)):
        carry(ledger, stock, hop, "x", "z", piece)
    stock.count({})
    lot = Lot(("x",), "z", "t")
    assert list(stock.recall(lot, 55)) == [A]  # 15 bytes more are less than half of the next piece
    assert stock.lots() == {Lot(("x",), "", "t"): 40, lot: 60, Lot(("x", "y"), "", "t"): 60}
    assert stock.backlog == {"z": 60}


def test_a_file_without_a_byte_is_a_piece_too():
    ledger = Ledger(Demand((File("empty", 0, ("x", "y"), ("t",)),)))
    stock = Stock(ledger)
    stock.count({})
    assert stock.lots() == {Lot(("x",), "", "t"): 1}
    piece = stock.take("x", "t", 100, MOST)
    assert piece == Piece("empty", 0, 0)
    assert not stock
    stock.put("x", piece, "t")
    assert stock.has("x", "t")
    ledger.gone("x")
    stock.count({})
    assert stock.lots() == {Lot(("y",), "", "t"): 1}
    ledger.gone("y")
    stock.count({})
    assert stock.lots() == {Lot((), "", "t"): 1}


def test_files_cannot_be_sent_before_they_are_available():
    stock = Stock(Ledger(Demand((File("a", 100, ("x",), ("t",), available=7.0), File("b", 5, ("x",), ("t",))))))
    stock.count({}, 6.9)
    assert (stock.lots(), stock.later) == ({Lot(("x",), "", "t"): 5}, 7.0)
    stock.count({}, 7.0)
    assert (stock.lots(), stock.later) == ({Lot(("x",), "", "t"): 105}, inf)
