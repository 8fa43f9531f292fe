"""The rule for stealing, with any numbers."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from coalloc.schedule.steal_size import LEAST_STEAL, Thief, Victim, saves_all, seconds_together, stolen

rates = st.floats(1e3, 1e9)
delays = st.floats(0, 10)


@st.composite
def victims(draw):
    """A victim that delivers all at its rate after its pause, or one that is silent."""
    nbytes, pause = draw(st.integers(1, 10**10)), draw(delays)
    rate = draw(rates | st.just(0.0))
    return Victim(
        nbytes,
        pause + nbytes / rate if rate else inf,
        rate,
        pause,
        draw(st.integers(0, 10**7)),
        draw(st.just(inf) | st.integers(1, nbytes)),
    )


thieves = st.builds(
    Thief,
    rates,
    delays,
    st.just(0.0) | delays,
    st.just(0.0) | delays,
    st.sampled_from([1024, LEAST_STEAL]),
    st.just(0.0) | delays,
)


@given(victims(), thieves, st.lists(victims(), max_size=3))
def test_a_steal_is_worth_it_and_leaves_no_scraps(victim, thief, others):
    together = seconds_together(thief, [victim, *others])
    nbytes = stolen(victim, thief, together, thief.worth)
    assert 0 <= nbytes <= victim.nbytes
    if nbytes:
        assert victim.seconds - thief.seconds(nbytes) >= thief.worth
    if 0 < nbytes < victim.nbytes:
        assert nbytes >= thief.least
        assert victim.nbytes - nbytes >= max(thief.least, victim.in_flight)
        assert nbytes <= victim.tail
        assert nbytes <= thief.rate * together
        assert (victim.nbytes - nbytes) - victim.rate * max(0.0, together - victim.pause) >= -1


@given(victims(), thieves)
def test_both_end_together_where_nothing_hinders_it(victim, thief):
    victim = victim._replace(in_flight=0, tail=inf)
    together = seconds_together(thief, [victim])
    nbytes = stolen(victim, thief, together, thief.worth)
    if 0 < nbytes < victim.nbytes:
        assert (
            abs(thief.busy + thief.setup + nbytes / thief.rate + thief.delay - together)
            <= 1e-6 * together + 2 / thief.rate
        )
        rest = victim.pause + (victim.nbytes - nbytes) / victim.rate
        assert rest <= together * (1 + 1e-6) + 2 / victim.rate or victim.pause > together


@given(victims(), thieves, st.floats(0, 100), st.floats(0, 100))
def test_higher_threshold_never_adds_or_changes_a_steal(victim, thief, worth, more):
    together = seconds_together(thief, [victim])
    assert stolen(victim, thief, together, worth + more) in (0, stolen(victim, thief, together, worth))


@given(victims(), thieves)
def test_silent_victim_loses_all_stealable_bytes(victim, thief):
    victim = victim._replace(seconds=inf, rate=0.0, in_flight=0, tail=inf)
    assert stolen(victim, thief, seconds_together(thief, [victim]), thief.worth) == victim.nbytes
    assert saves_all(victim, thief, thief.worth)


@given(victims())
def test_one_without_a_rate_takes_nothing(victim):
    assert stolen(victim, Thief(0.0, 0.1), 1.0, 0.0) == 0
