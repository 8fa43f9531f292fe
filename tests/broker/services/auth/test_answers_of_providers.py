"""Answers of identity providers, and unsigned tokens: bounded memory, and no internal error."""

import base64
import gzip
import json
from functools import cache

import pytest

from broker.config.identity_providers import Issuer
from broker.errors import Unauthenticated
from broker.services.auth.issuers import LARGEST, Issuers, document
from tests.support.scripted import limited, raw_server


@cache
def bomb():
    """Return a compressed body of half a gigabyte."""
    return gzip.compress(bytes(1 << 26)) * 8


def answering(body, headers=""):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body)
        await writer.drain()
        await reader.read()

    return raw_server(serve)


async def endless(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


ASK = """
from broker.services.auth.issuers import document

async def ask(url):
    try:
        await document(url)
    except ValueError as error:
        print("refused", error)

asyncio.run(ask(sys.argv[1]))
"""


def packed():
    return answering(bomb(), "Content-Encoding: gzip\r\n")


@pytest.mark.parametrize("server", [lambda: raw_server(endless), packed], ids=["endless", "packed"])
async def test_an_answer_without_end_takes_no_memory(server):
    async with server() as port:
        assert (await limited(ASK, f"http://127.0.0.1:{port}/")).startswith("refused")


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"1", b"null", b"[" * 500_000, b'{"a": ' * 100_000, b"1" * 4301, b"\xff", b"x" * (LARGEST + 1)]
)
async def test_an_invalid_document_is_refused(body):
    async with answering(body) as port:
        with pytest.raises(ValueError, match=r"."):
            await document(f"http://127.0.0.1:{port}/")


@pytest.mark.parametrize("variable", ["http_proxy", "all_proxy"])
async def test_a_proxy_never_sees_what_is_sent_to_this_machine(variable, monkeypatch):
    """The proxy would see tokens and the client's secret, and could answer with keys of its own."""
    async with answering(b'{"from": "proxy"}') as proxy, answering(b'{"from": "provider"}') as port:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy}")
        for host in ("127.0.0.1", "localhost"):
            assert await document(f"http://{host}:{port}/keys") == {"from": "provider"}


def encoded(part):
    return base64.urlsafe_b64encode(part.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "claims", ["[" * 30_000, '{"a": ' * 9_000, "1" * 4301, '{"iss": Infinity}', '{"exp": 1e999}', "null", '"x"', ""]
)
@pytest.mark.parametrize("header", [{"alg": "RS256"}, {"alg": "RS256", "kid": 1}, {"alg": ["none"]}])
async def test_a_token_that_is_none_is_not_valid(claims, header):
    issuers = Issuers([Issuer("https://id.example", ("here",), {})])
    token = f"{encoded(json.dumps(header))}.{encoded(claims)}.AAAA"
    assert not issuers.signed(token)
    with pytest.raises(Unauthenticated):
        await issuers.caller(token)
    nested = f"{encoded('[' * 30_000)}.{encoded('{}')}.AAAA"
    with pytest.raises(Unauthenticated):
        await issuers.caller(nested)
