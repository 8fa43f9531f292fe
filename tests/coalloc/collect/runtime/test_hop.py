"""A hop: requested bytes, arrived bytes and its end, for any outcome of its slices."""

import pytest

from coalloc.collect.methods.actions import Piece
from coalloc.collect.runtime.hop import Hop
from coalloc.errors import ConnectionLost

LOST = ConnectionLost("gone")


@pytest.fixture
def heard():
    return []


@pytest.fixture
def hop(heard):
    return made(Piece("x", 10, 30), heard)


def made(piece, heard):
    async def prepare():
        pass

    return Hop(piece, ("a", "b"), ("/x", lambda: "/y"), prepare, lambda hop: heard.append(hop.over))


def test_slices_make_up_the_piece(hop, heard):
    assert [hop.take(15), hop.take(15)] == [(10, 25), (25, 30)]
    assert not hop.has_requests_left
    hop.received(10, 20)
    hop.returned(10, 25, None)
    hop.returned(25, 30, None)
    assert heard == [False, True]
    assert hop.landed.is_set()
    assert hop.error is None


def test_lost_bytes_are_requested_again(hop):
    hop.take(15)
    hop.take(15)
    hop.received(10, 14)
    hop.returned(10, 25, LOST)
    hop.returned(25, 30, None)
    assert hop.take(100) == (14, 25)
    hop.returned(14, 25, None)
    assert hop.over


def test_bytes_reported_before_a_loss_count(hop):
    hop.take(20)
    hop.received(10, 30)
    hop.returned(10, 30, LOST)
    assert hop.over
    assert hop.error is None


def test_a_piece_without_a_byte_is_asked_for_once(heard):
    hop = made(Piece("x", 0, 0), heard)
    assert hop.take(100) == (0, 0)
    assert not hop.has_requests_left
    hop.returned(0, 0, LOST)
    assert hop.has_requests_left
    hop.take(100)
    hop.returned(0, 0, None)
    assert heard == [True]


def test_a_hop_that_is_stopped_lands_when_nothing_of_it_comes_any_more(hop, heard):
    hop.take(5)
    hop.stop()
    assert not hop.has_requests_left
    assert not hop.landed.is_set()
    hop.received(10, 15)
    hop.returned(10, 15, None)
    assert hop.landed.is_set()
    assert heard == []
