import base64

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coalloc.depot.protocol.addresses import DestinationPattern
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.tickets import LONGEST_TICKET, Ticket, key_of, read_ticket, sign

SECRET = b"0123456789abcdef"
PATTERNS = tuple(map(DestinationPattern.parse, ("gridftp.site.example:2811", "192.0.2.0/24")))
TICKET = Ticket("k3J9xQ2a7Zs1", "ann@site.example", "depot-a", PATTERNS, 1785000000, 10**12, 64, "198.51.100.7")
NOW = TICKET.expires - 1


def test_a_ticket_is_read_as_it_was_signed():
    text = sign(TICKET, SECRET)
    assert len(text) <= LONGEST_TICKET
    assert read_ticket(text, SECRET, "depot-a", NOW) == TICKET


@given(st.integers(0, LONGEST_TICKET), st.characters(codec="utf-8"))
def test_an_altered_ticket_is_refused(place: int, letter: str):
    text = sign(TICKET, SECRET)
    altered = text[:place] + letter + text[place + 1 :]
    if altered != text:
        with pytest.raises(DepotFailure, match="not valid"):
            read_ticket(altered, SECRET, "depot-a", NOW)


@given(st.text(max_size=300))
@example("")
@example(".")
@example("é.")
@example("x" * 300 + ".")
def test_any_text_is_refused(text: str):
    with pytest.raises(DepotFailure, match="not valid"):
        read_ticket(text, SECRET, "depot-a", NOW)


@pytest.mark.parametrize("padding", [0, 200])
def test_a_ticket_without_signature_is_refused(padding: int):
    claims = sign(TICKET, SECRET).split(".")[1]
    padded = base64.urlsafe_b64encode(base64.urlsafe_b64decode(claims + "==") + b" " * padding).decode().rstrip("=")
    with pytest.raises(DepotFailure, match="not valid"):
        read_ticket(f"t1.{padded}.", SECRET, "depot-a", NOW)


def test_a_ticket_is_for_one_depot_and_some_time():
    text = sign(TICKET, SECRET)
    with pytest.raises(DepotFailure, match="another depot"):
        read_ticket(text, SECRET, "depot-b", NOW)
    with pytest.raises(DepotFailure, match="not valid"):
        read_ticket(text, SECRET[::-1], "depot-a", NOW)
    with pytest.raises(DepotFailure, match="expired"):
        read_ticket(text, SECRET, "depot-a", TICKET.expires)


def test_a_key_belongs_to_one_ticket_and_one_secret():
    one, other = sign(TICKET, SECRET), sign(TICKET._replace(user="bob"), SECRET)
    assert len({key_of(one, SECRET), key_of(other, SECRET), key_of(one, b"other")}) == 3
    assert key_of(one, SECRET).hex() not in one


def test_a_ticket_longer_than_a_socks_password_is_not_signed():
    with pytest.raises(ValueError, match="more than 255"):
        sign(TICKET._replace(user="x" * 200), SECRET)
