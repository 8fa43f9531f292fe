import contextlib
import json
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import DepotFailure
from coalloc.depot.protocol.session_header import (
    MAGIC,
    MOST_CONNECTIONS,
    MOST_HOPS,
    Answer,
    Pass,
    PortRequest,
    SessionHeader,
    SessionRequest,
    credentials,
    prove,
)
from coalloc.safe_text import escaped

A, B, C = (HostPort(f"{name}.example", 4000) for name in "abc")
TO = HostPort("2001:db8::1", 2811)
REQUEST = SessionRequest("0f" * 16, (A, B, C), TO, False, 1785000000.5, 1 << 20, "bbr", ("depot-x",))


def header(request: SessionRequest = REQUEST, keys=(("ticket", b"key"), None, ("other", b"k"))) -> SessionHeader:
    raw = request.encode()
    return SessionHeader(request, raw, credentials(raw, keys))


def encoded(fields: dict, passes=(("", "", ""),)) -> bytes:
    raw, rest = json.dumps(fields).encode(), json.dumps(passes).encode()
    return struct.pack(">4sHH", MAGIC, len(raw), len(rest)) + raw + rest


def fields(**changed: object) -> dict:
    return {**json.loads(REQUEST.encode()), "route": ["a.example:4000"], **changed}


@given(st.integers(0, 2000))
def test_it_is_complete_at_its_last_byte_and_not_before(cut: int):
    whole = header().encode() + b"payload"
    found = SessionHeader.decode(whole[:cut])
    if cut < len(whole) - 7:
        assert found is None
    else:
        assert found == (header(), whole[:cut][len(whole) - 7 :])


def test_each_hop_takes_its_pass_and_knows_its_place():
    first = header()
    second = SessionHeader.decode(first.forwarded(b"key").encode())[0]
    third = SessionHeader.decode(second.forwarded(None).encode())[0]
    assert [each.hop for each in (first, second, third)] == [0, 1, 2]
    assert [each.next for each in (first, second, third)] == [B, C, None]
    assert third.raw == first.raw
    assert [each.passes[0].ticket for each in (first, second, third)] == ["ticket", "", "other"]


def test_a_proof_is_for_one_request_one_key_and_one_place():
    proofs = {
        prove(key, hop, raw, link)
        for link in ("", "00")
        for key in (b"key", b"other")
        for hop in (0, 1)
        for raw in (REQUEST.encode(), REQUEST._replace(destination=A).encode())
    }
    assert len(proofs) == 16
    assert header().passes[0].proof in proofs


def test_a_proof_for_a_later_depot_needs_the_link_that_only_the_depot_before_it_can_make():
    first = header(keys=[("ticket", b"key"), ("other", b"k"), ("last", b"l")])
    for position, key in ((1, b"key"), (2, b"k")):
        following = first.forwarded(key)
        one = following.passes[0]
        assert one.proof == prove([b"", b"k", b"l"][position], position, first.raw, one.link)
        assert {prove(b"k", 1, first.raw), prove(b"l", 2, first.raw)}.isdisjoint({one.proof})
        assert not first.passes[1].link
        first = following


@pytest.mark.parametrize(
    "changed",
    [
        {"route": []},
        {"route": ["a.example"]},
        {"route": ["a.example:4000", "a.example:4000"]},
        {"route": ["A.example.:4000", "a.example:4000"]},
        {"route": [f"h{number}:1" for number in range(MOST_HOPS + 1)]},
        {"visited": ["x"] * (MOST_HOPS + 1)},
        {"session": "+" + "0" * 31},
        {"session": "0" * 31},
        {"destination": "a.example:0"},
        {"destination": "a b:1"},
        {"destination": "[fe80::1%eth0]:1"},
        {"loose": 1},
        {"buffer": -1},
        {"buffer": True},
        {"buffer": 1.5},
        {"time": "now"},
        {"time": float("nan")},
        {"time": float("inf")},
        {"time": 10**400},
        {"congestion": "x" * 16},
        {"congestion": "\ud800"},
        {"congestion": "a\nb"},
        {"visited": [1]},
        {"visited": "x"},
    ],
)
def test_malformed_headers_are_refused(changed: dict):
    with pytest.raises(DepotFailure) as refused:
        SessionHeader.decode(encoded(fields(**changed)))
    assert refused.value.code in ("malformed", "loop")


@pytest.mark.parametrize("passes", [[], [["", "", ""], ["", "", ""]], [["a", "b"]], [[1, 2, 3]], {}, 1])
def test_malformed_passes_are_refused(passes: object):
    with pytest.raises(DepotFailure, match=r"malformed|JSON|passes"):
        SessionHeader.decode(encoded(fields(), passes))


@given(st.binary(max_size=200))
@example(MAGIC + b"\xff\xff\0\0")
@example(MAGIC + b"\0\x02\0\x02[][]")
@example(struct.pack(">4sHH", MAGIC, 4000, 2) + b"[" * 4000 + b"[]")
@example(b"LSL\x02")
def test_any_bytes_are_a_header_or_incomplete_or_refused(data: bytes):
    for whole in (data, MAGIC + data):
        with contextlib.suppress(DepotFailure):
            SessionHeader.decode(whole)


WANTED = REQUEST._replace(port=PortRequest("192.0.2.7", 4))


def test_a_request_for_a_port_has_no_destination_for_depots_that_know_no_ports():
    sent = json.loads(WANTED.encode())
    assert "destination" not in sent
    assert sent["port"] == {"peer": "192.0.2.7", "connections": 4, "destination": str(TO)}
    assert SessionHeader.decode(header(WANTED).encode())[0].request == WANTED
    assert "port" not in json.loads(REQUEST.encode())


@pytest.mark.parametrize(
    "changed",
    [
        {"peer": "host.example"},
        {"peer": "fe80::1%eth0"},
        {"peer": None},
        {"connections": 0},
        {"connections": MOST_CONNECTIONS + 1},
        {"connections": True},
        {"destination": "ftp.example:2811"},
        {"destination": "192.0.2.1:0"},
        {"destination": None},
    ],
)
def test_a_malformed_request_for_a_port_is_refused(changed: dict):
    sent = fields()
    del sent["destination"]
    good = {"peer": "192.0.2.7", "connections": 4, "destination": "192.0.2.1:2811"}
    assert SessionHeader.decode(encoded({**sent, "port": good}))[0].request.port == PortRequest("192.0.2.7", 4)
    for wrong in ({**sent, "port": {**good, **changed}}, {**sent, "port": 1}, fields(port=good)):
        with pytest.raises(DepotFailure) as refused:
            SessionHeader.decode(encoded(wrong))
        assert refused.value.code == "malformed"


def test_a_header_is_not_longer_than_a_depot_reads():
    long = REQUEST._replace(visited=("x" * 300,) * MOST_HOPS)
    assert SessionHeader.decode(header(long).encode())
    with pytest.raises(ValueError, match="too long"):
        header(long._replace(visited=("x" * 3000, "y" * 2000))).encode()
    with pytest.raises(ValueError, match="too long"):
        header()._replace(passes=(Pass("x" * 5000),)).encode()


ANSWERS = st.one_of(
    st.builds(Answer, st.none(), st.lists(st.floats(0, 100), max_size=8).map(tuple), st.none() | st.integers(1, 65535)),
    st.builds(lambda text, hop: Answer(DepotFailure("refused", text, hop)), st.text(max_size=600), st.integers(0, 9)),
)


@given(ANSWERS, st.binary(max_size=20), st.data())
def test_an_answer_is_received_to_its_last_byte_and_no_further(answer: Answer, payload: bytes, data: st.DataObject):
    stream, received = answer.encode() + payload, b""
    while missing := Answer.missing(received):
        count = data.draw(st.integers(1, missing))
        received += stream[len(received) : len(received) + count]
    found = Answer.decode(received)
    assert stream[len(received) :] == payload
    assert (found.legs, found.port) == (answer.legs, answer.port)
    if answer.failure:
        assert found.failure.code == "refused"
        assert found.failure.hop == answer.failure.hop
        assert escaped(answer.failure.message).startswith(found.failure.message)


@given(st.binary(max_size=100))
@example(b"")
@example(b"{}")
@example(b'{"legs": [1e999]}')
@example(b'{"code": "x", "message": "m", "hop": 0}')
def test_any_bytes_are_an_answer_or_refused(data: bytes):
    for whole in (data, MAGIC + data, MAGIC + struct.pack(">H", len(data)) + data):
        try:
            if not Answer.missing(whole):
                assert isinstance(Answer.decode(whole), Answer)
        except DepotFailure:
            pass


@pytest.mark.parametrize(
    "fields",
    [
        {"legs": [-1]},
        {"legs": [1, -0.5]},
        {"legs": [], "port": -1},
        {"legs": [], "port": 0},
        {"code": "refused", "message": "m", "hop": -9},
    ],
)
def test_an_answer_with_negative_numbers_is_malformed(fields: dict):
    raw = json.dumps(fields).encode()
    with pytest.raises(DepotFailure, match="malformed"):
        Answer.decode(MAGIC + struct.pack(">H", len(raw)) + raw)


def test_control_characters_in_the_message_of_a_failure_are_escaped():
    raw = json.dumps({"code": "refused", "message": "a\n\x1b[2J\ud800", "hop": 0}).encode()
    assert Answer.decode(MAGIC + struct.pack(">H", len(raw)) + raw).failure.message == r"a\n\x1b[2J\ud800"


def test_an_unknown_failure_is_a_failure():
    raw = b'{"code": "new", "message": "m", "hop": 2}'
    failure = Answer.decode(MAGIC + struct.pack(">H", len(raw)) + raw).failure
    assert (failure.code, failure.message, failure.hop) == ("unsupported", "m", 2)
