"""Pieces: as few as possible, with the checksums of their bytes."""

import itertools
import zlib

from hypothesis import given
from hypothesis import strategies as st

from coalloc.partial_file.pieces import Pieces

SIZE = 40
CONTENT = bytes((7 * i + i * i) % 251 for i in range(SIZE))

cuts = st.lists(st.integers(1, SIZE - 1), unique=True).map(sorted)


@st.composite
def deliveries(draw):
    """Draw a file cut into parts, each from one of three sources, in any order, not all of which arrive."""
    edges = [0, *draw(cuts), SIZE]
    parts = [(a, b, draw(st.integers(0, 2))) for a, b in itertools.pairwise(edges)]
    return draw(st.permutations(parts))[: draw(st.integers(0, len(parts)))]


def put(pieces, owners, part):
    start, end, source = part
    data = CONTENT[start:end]
    pieces.add(start, end, source, zlib.adler32(data), zlib.crc32(data))
    owners[start:end] = [source] * (end - start)


def runs(owners):
    """Return the maximal runs of one owner, as [(start, end, owner)]."""
    found = []
    for i, owner in enumerate(owners):
        if owner is None:
            continue
        if found and found[-1][1:] == (i, owner):
            found[-1] = (found[-1][0], i + 1, owner)
        else:
            found.append((i, i + 1, owner))
    return found


@given(deliveries())
def test_neighbours_of_one_source_become_one_piece(parts):
    pieces, owners = Pieces(), [None] * SIZE
    for part in parts:
        put(pieces, owners, part)
    assert [(p.start, p.end, p.source) for p in pieces] == runs(owners)
    for piece in pieces:
        data = CONTENT[piece.start : piece.end]
        assert (piece.adler32, piece.crc) == (zlib.adler32(data), zlib.crc32(data))


@given(deliveries(), st.integers(0, SIZE), st.integers(0, SIZE))
def test_cut_pieces_have_no_checksums_and_can_be_filled_again(parts, start, end):
    pieces, owners = Pieces(), [None] * SIZE
    for part in parts:
        put(pieces, owners, part)
    whole = {(p.start, p.end) for p in pieces}
    pieces.remove(start, end)
    owners[start:end] = [None] * max(0, end - start)
    assert [(p.start, p.end, p.source) for p in pieces] == runs(owners)
    for piece in pieces:
        assert (piece.adler32 is None) == ((piece.start, piece.end) not in whole)
    for i in range(start, end):
        put(pieces, owners, (i, i + 1, 2))
    assert [(p.start, p.end, p.source) for p in pieces] == runs(owners)


def test_clear_forgets_all():
    pieces = Pieces()
    pieces.add(0, 3, 0, 1)
    pieces.clear()
    pieces.add(3, 5, 0, 1)
    assert [(p.start, p.end) for p in pieces] == [(3, 5)]
