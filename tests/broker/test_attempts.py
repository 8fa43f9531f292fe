"""How often one address may try, and that those who come from very many addresses fill nothing."""

import pytest

from broker.errors import TooManyRequests
from broker.services import attempts
from broker.services.attempts import Attempts


def test_very_many_addresses_are_forgotten_in_the_order_in_which_they_began(monkeypatch):
    monkeypatch.setattr(attempts, "MOST_ADDRESSES", 3)
    guesses = Attempts(2, 60)
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1", "192.0.2.3"):
        guesses.failed(address)
    with pytest.raises(TooManyRequests):
        guesses.failed("192.0.2.1")
    guesses.failed("192.0.2.4")  # takes the place of 192.0.2.1
    guesses.check("192.0.2.1")
    assert len(guesses._made) == 3


def test_those_whose_time_is_over_go_first(monkeypatch):
    monkeypatch.setattr(attempts, "MOST_ADDRESSES", 3)
    now = 0.0
    monkeypatch.setattr(attempts.time, "monotonic", lambda: now)
    guesses = Attempts(1, 60)
    guesses.failed("192.0.2.1")
    now = 30.0
    guesses.failed("192.0.2.2")
    now = 70.0
    guesses.failed("192.0.2.1")  # anew: it is the last by now
    guesses.failed("192.0.2.3")
    now = 95.0
    guesses.failed("192.0.2.4")
    assert list(guesses._made) == ["192.0.2.1", "192.0.2.3", "192.0.2.4"]
    with pytest.raises(TooManyRequests):
        guesses.failed("192.0.2.1")


def test_addresses_of_one_network_are_one():
    guesses = Attempts(1, 60)
    guesses.failed("2001:db8::1")
    with pytest.raises(TooManyRequests):
        guesses.failed("2001:db8::ffff:2")
    guesses.failed("2001:db8:0:1::1")
