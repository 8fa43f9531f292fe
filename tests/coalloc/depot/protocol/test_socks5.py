import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.socks5 import Socks5

GREETING = b"\x05\x02\x00\x02"
LOGIN = b"\x01\x03ann\x06ticket"
BY_NAME = b"\x05\x01\x00\x03\x09a.example\x1f\x90"
BY_IPV4 = b"\x05\x01\x00\x01\xc0\x00\x02\x07\x00\x50"
BY_IPV6 = b"\x05\x01\x00\x04" + bytes.fromhex("20010db8000000000000000000000001") + b"\x01\xbb"


@given(st.lists(st.integers(1, 60)))
def test_messages_may_come_in_any_pieces(cuts: list[int]):
    front, whole = Socks5(needs_ticket=True), GREETING + LOGIN + BY_NAME + b"payload"
    sent, opening, at = b"", None, 0
    for cut in [*cuts, len(whole)]:
        piece, at = whole[at : at + cut], at + cut
        if opening is not None or not piece:
            break
        reply, opening = front.receive(piece)
        sent += reply
    assert opening is not None
    assert sent == b"\x05\x02\x01\x00"
    assert (opening.destination, opening.ticket) == (HostPort("a.example", 8080), "ticket")
    assert b"payload".startswith(opening.rest)


@pytest.mark.parametrize(
    ("request_", "host", "port"),
    [(BY_NAME, "a.example", 8080), (BY_IPV4, "192.0.2.7", 80), (BY_IPV6, "2001:db8::1", 443)],
)
def test_a_destination_is_a_name_or_an_address(request_: bytes, host: str, port: int):
    front = Socks5(needs_ticket=False)
    assert front.receive(b"\x05\x01\x00") == (b"\x05\x00", None)
    _, opening = front.receive(request_)
    assert opening.destination == HostPort(host, port)
    assert opening.ticket == ""
    assert front.accepted(()) == b"\x05\x00\x00\x01" + bytes(6)


@pytest.mark.parametrize(
    ("messages", "code", "reply"),
    [
        ([b"\x05\x01\x00"], "ticket", b"\x05\xff"),
        ([b"\x05\x00"], "ticket", b"\x05\xff"),
        ([GREETING, b"\x02\x01a\x01b"], "malformed", b"\x01\x01"),
        ([GREETING, LOGIN, b"\x05\x02" + BY_NAME[2:]], "unsupported", b"\x05\x07"),
        ([GREETING, LOGIN, b"\x05\x01\x00\x05abcde"], "malformed", b"\x05\x01"),
        ([GREETING, LOGIN, b"\x05\x01\x00\x03\x00\x00\x50"], "malformed", b"\x05\x01"),
        ([GREETING, LOGIN, b"\x05\x01\x00\x03\x03a\x00b\x00\x50"], "malformed", b"\x05\x01"),
        ([GREETING, LOGIN, BY_IPV4[:-2] + b"\0\0"], "malformed", b"\x05\x01"),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(messages: list[bytes], code: str, reply: bytes):
    front = Socks5(needs_ticket=True)
    for each in messages[:-1]:
        front.receive(each)
    with pytest.raises(DepotFailure) as refused:
        front.receive(messages[-1])
    assert refused.value.code == code
    assert front.refused(refused.value).startswith(reply)


@given(st.binary(max_size=100), st.booleans())
def test_any_bytes_are_a_request_or_incomplete_or_refused(data: bytes, needs_ticket: bool):
    front = Socks5(needs_ticket=needs_ticket)
    failures = []
    try:
        front.receive(b"\x05" + data)
    except DepotFailure as failure:
        failures.append(failure)
    assert all(map(front.refused, failures))
