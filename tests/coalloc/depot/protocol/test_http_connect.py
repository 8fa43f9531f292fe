import base64
import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.depot.protocol.addresses import HostPort
from coalloc.depot.protocol.failures import CODES, DepotFailure
from coalloc.depot.protocol.http_connect import LONGEST_HEAD, METRICS, HttpConnect

REQUEST = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nUser-Agent: x\r\n"


def opened(request: bytes):
    return HttpConnect().receive(request)[1]


@given(st.integers(0, 100))
def test_a_request_may_come_in_any_pieces(cut: int):
    whole, front = REQUEST + b"\r\npayload", HttpConnect()
    _, opening = front.receive(whole[:cut])
    if opening is None:
        _, opening = front.receive(whole[cut:])
    assert opening.destination == HostPort("a.example", 443)
    assert b"payload".startswith(opening.rest)


@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC "])
def test_a_ticket_is_the_password(scheme: str):
    login = base64.b64encode(b"ann:t1.a.b:c").decode()
    assert opened(REQUEST + f"Proxy-Authorization: {scheme} {login}\r\n\r\n".encode()).ticket == "t1.a.b:c"


def test_a_ticket_is_a_bearer_token():
    assert opened(REQUEST + b"proxy-authorization:Bearer t1.a.b \r\n\r\n").ticket == "t1.a.b"


def test_metrics_have_a_path_of_their_own():
    assert opened(b"GET /metrics HTTP/1.0\r\n\r\n").destination is METRICS


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET http://a.example/ HTTP/1.1\r\n\r\n", 405),
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"CONNECT a.example HTTP/1.1\r\n\r\n", 400),
        (b"CONNECT a.example:443 HTTP/2\r\n\r\n", 400),
        (b"CONNECT a.example:443 HTTP/1.1 x\r\n\r\n", 400),
        (REQUEST + b"Transfer-Encoding: chunked\r\n\r\n", 400),
        (REQUEST + b"Content-Length: 3\r\n\r\n", 400),
        (REQUEST + b"Bad Field: 1\r\n\r\n", 400),
        (REQUEST + b" folded\r\n\r\n", 400),
        (REQUEST + b"Proxy-Authorization: Basic !\r\n\r\n", 400),
        (REQUEST + b"Proxy-Authorization: Basic YTpi\r\nProxy-Authorization: Basic YTpj\r\n\r\n", 400),
        (b"CONNECT a.example:443 HTTP/1.1\nHost: x\r\n\r\n", 400),
        (b"C" * (LONGEST_HEAD + 1), 400),
    ],
)
def test_a_request_that_cannot_be_served_is_refused(request_: bytes, status: int):
    front = HttpConnect()
    with pytest.raises(DepotFailure) as refused:
        front.receive(request_)
    assert front.refused(refused.value).startswith(f"HTTP/1.1 {status} ".encode())


def test_every_failure_has_a_status():
    for code in CODES:
        head, _, body = HttpConnect().refused(DepotFailure(code, "the reason")).partition(b"\r\n\r\n")
        assert head.startswith((b"HTTP/1.1 4", b"HTTP/1.1 5"))
        assert body == b"the reason\n"
    assert b"Proxy-Authenticate: Basic" in HttpConnect().refused(DepotFailure("ticket", ""))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_request_or_incomplete_or_refused(data: bytes):
    for whole in (data + b"\r\n\r\n", b"CONNECT " + data + b"\r\n\r\n", REQUEST + data + b"\r\n\r\n"):
        with contextlib.suppress(DepotFailure):
            HttpConnect().receive(whole)
