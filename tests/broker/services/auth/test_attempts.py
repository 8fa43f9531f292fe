"""Rate limits of login attempts per address, with bounded memory for very many addresses."""

import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import TooManyRequests
from broker.services.auth import attempts as module
from broker.services.auth.attempts import Attempts


def test_very_many_addresses_are_forgotten_in_the_order_in_which_they_began(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    guesses = Attempts(2, 60)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3"):
        guesses.failed(address)
    with pytest.raises(TooManyRequests):
        guesses.failed("192.0.2.1")
    guesses.failed("192.0.2.4")  # evicts 192.0.2.1
    guesses.check("192.0.2.1")
    assert len(guesses._made) == 3


def test_the_oldest_attempts_are_dropped_first(monkeypatch):
    monkeypatch.setattr(module, "MOST", 3)
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    guesses = Attempts(1, 60)
    guesses.failed("192.0.2.1")
    now = 30.0
    guesses.failed("192.0.2.2")
    now = 70.0
    guesses.failed("192.0.2.1")  # used again: it is the newest now
    guesses.failed("192.0.2.3")
    now = 95.0
    guesses.failed("192.0.2.4")
    assert list(guesses._made) == [(each, "") for each in ("192.0.2.1", "192.0.2.3", "192.0.2.4")]
    with pytest.raises(TooManyRequests):
        guesses.failed("192.0.2.1")


def test_addresses_of_one_network_are_one():
    guesses = Attempts(1, 60)
    guesses.failed("2001:db8::1")
    with pytest.raises(TooManyRequests):
        guesses.failed("2001:db8::ffff:2")
    guesses.failed("2001:db8:0:1::1")


def test_wrong_attempts_with_one_credential_delay_no_other():
    guesses = Attempts(2, 60)
    for _ in range(2):
        guesses.failed("192.0.2.1", "a")
        guesses.failed("192.0.2.1")
    for credential in ("a", ""):
        with pytest.raises(TooManyRequests):
            guesses.failed("192.0.2.1", credential)
    guesses.failed("192.0.2.1", "b")
    guesses.failed("192.0.2.2", "a")


ATTEMPTS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from(["", "a", "b", "c"])), max_size=60)


@given(ATTEMPTS)
def test_the_limit_of_attempts_holds_for_each_address_and_credential(attempts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", 100)
        guesses, through = Attempts(3, 60), Counter[tuple[int, str]]()
        for address, credential in attempts:
            try:
                guesses.failed(f"192.0.2.{address}", credential)
                through[address, credential] += 1
            except TooManyRequests:
                assert through[address, credential] == 3
        assert through == {key: min(3, count) for key, count in Counter(attempts).items()}


@given(ATTEMPTS)
def test_the_number_of_kept_attempts_is_bounded(attempts):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MOST", 3)
        guesses = Attempts(100, 60)
        for address, credential in attempts:
            guesses.failed(f"192.0.2.{address}", credential)
            assert len(guesses._made) <= 3
