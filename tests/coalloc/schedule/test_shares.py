from hypothesis import given
from hypothesis import strategies as st

from coalloc.schedule.shares import cut, equal_shares, fill_shares, proportional_shares, tail

weights = st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=20)


@given(st.integers(0, 10**13), weights)
def test_proportional_shares_add_up_and_are_within_a_byte_of_the_formula(total, rates):
    shares = proportional_shares(total, rates)
    assert sum(shares) == total
    for share, rate in zip(shares, rates, strict=True):
        assert abs(share - total * rate / sum(rates)) <= 1 + total * 1e-12


@given(st.integers(0, 10**13), st.integers(1, 50))
def test_equal_shares(total, n):
    shares = equal_shares(total, n)
    assert sum(shares) == total
    assert max(shares) - min(shares) <= 1


@given(
    st.integers(1, 10**12),
    st.lists(st.tuples(st.floats(0, 10), st.floats(1e3, 1e9)), min_size=1, max_size=16),
    st.sampled_from([0, 1000, 262144]),
)
def test_fill_shares_lets_all_finish_together(total, sources, smallest):
    setups, rates = [s for s, _ in sources], [r for _, r in sources]
    shares, makespan = fill_shares(total, setups, rates, smallest)
    assert sum(shares) == total
    used = [i for i, share in enumerate(shares) if share]
    for i in used:
        assert abs(setups[i] + shares[i] / rates[i] - makespan) < 1e-6 * makespan + 2 / rates[i]
    assert len(used) == 1 or all(shares[i] >= smallest - 1 for i in used)
    alone = min(setup + total / rate for setup, rate in sources)
    assert makespan <= alone * 1.0001 or smallest


def test_fill_shares_by_hand():
    # T = 3 s: the first delivers 3 s * 100, the second, from 1 s on, 2 s * 50
    assert fill_shares(400, [0.0, 1.0], [100.0, 50.0]) == ([300, 100], 3.0)
    # the second would begin after the first is done
    assert fill_shares(400, [0.0, 9.0], [100.0, 50.0]) == ([400, 0], 4.0)


ranges = st.lists(st.integers(0, 10**6), min_size=2, max_size=20, unique=True).map(
    lambda edges: list(zip(sorted(edges)[::2], sorted(edges)[1::2], strict=False))
)


@given(ranges, weights)
def test_cut_deals_out_every_byte_in_order(pieces, rates):
    total = sum(b - a for a, b in pieces)
    sizes = proportional_shares(total, rates)
    parts = cut(pieces, sizes)
    assert [sum(b - a for a, b in part) for part in parts] == sizes
    dealt = [byte for part in parts for a, b in part for byte in (a, b - 1)]
    assert dealt == sorted(dealt)


@given(ranges, st.integers(1, 10**6))
def test_tail_holds_what_was_asked(pieces, nbytes):
    middle = tail(pieces, nbytes)
    held = sum(b - max(a, middle) for a, b in pieces if b > middle)
    assert held == min(nbytes, sum(b - a for a, b in pieces))
