"""Answers that no broker gives: each raises an error with a remedy, in bounded memory."""

import gzip
import json
import math
from functools import cache

import pytest

from coalloc.broker_client import Broker, BrokerTasks
from coalloc.config import BrokerAccess
from coalloc.errors import CoallocError, NothingToFetchFrom
from tests.support.scripted import limited, raw_server

NUMBERS = [
    "Infinity",
    "-Infinity",
    "NaN",
    "1e999",
    "-1e999",
    "9" * 4301,
    "-1",
    "true",
    "1.5",
    str(2**63),
    '"1"',
    "[]",
    "{}",
]
REPLICA = {"url": "ftp://h/x", "rank": 1, "measured": True, "setup_seconds": None, "rate": None, "rationale": "r"}
LINE = {"name": "a:b", "error": None, "size": 1, "checksums": {}, "replicas": [REPLICA]}
END = '{"end": true, "count": 1}'


def answering(body):
    async def serve(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body.encode())}\r\nConnection: close\r\n\r\n".encode())
        writer.write(body.encode())
        await writer.drain()
        await reader.read()  # the whole request, otherwise its rest may be lost

    return raw_server(serve)


@pytest.mark.parametrize(
    "proxy", ["socks5h://ann:secretpw@127.0.0.1:1", "socks4://ann:secretpw@127.0.0.1:1", "http://ann:secretpw/x@p"]
)
async def test_a_proxy_that_cannot_be_used_is_reported_without_its_value(monkeypatch, proxy):
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(NothingToFetchFrom, match="a proxy in the environment cannot be used") as caught:
        await BrokerTasks(BrokerAccess("https://broker.invalid", None, None)).collections()
    assert "secretpw" not in caught.value.message + caught.value.remedy


async def refused(body, ask):
    async with answering(body) as port:
        with pytest.raises(CoallocError) as caught:
            await ask(BrokerAccess(f"http://127.0.0.1:{port}", None, None))
    assert isinstance(caught.value, NothingToFetchFrom)
    assert caught.value.remedy
    assert len(caught.value.message) < 500


def with_number(line, name, number):
    return json.dumps(line).replace(f'"{name}": {json.dumps(line[name])}', f'"{name}": {number}')


@pytest.mark.parametrize("number", NUMBERS)
async def test_ranks_and_sizes_that_are_none(number):
    replica = with_number(REPLICA, "rank", number)
    lines = [
        json.dumps({**LINE, "replicas": ["R"]}).replace('"R"', replica),
        with_number(LINE, "size", number),
    ]
    for line in lines:
        await refused(f"{line}\n{END}", lambda access: Broker(access).resolve(["a:b"]))


@pytest.mark.parametrize("number", [each for each in NUMBERS if each not in ("1.5", str(2**63))])
async def test_expectations_that_are_none(number):
    for name in ("setup_seconds", "p10", "p50", "p90"):
        rate = {"p10": 1.0, "p50": 2.0, "p90": 3.0}
        each = {"setup_seconds": 1.0, "rate": rate, "reason": "r", "newest_age": 1.0}
        text = json.dumps({"forecasts": [each]})
        value = {**rate, **each}[name]
        text = text.replace(f'"{name}": {value}', f'"{name}": {number}')
        await refused(text, lambda access: Broker(access).expected([("ftp://a", "ftp://b")]))


@pytest.mark.parametrize("number", NUMBERS)
async def test_invalid_counts_in_an_answer_are_refused(number):
    await refused(f'{{"accepted": {number}}}', lambda access: Broker(access).report([]))
    await refused(f'{{"changed": {number}}}', lambda access: Broker(access).register_all([]))


@pytest.mark.parametrize(
    "body", ["", "[", "null", "[]", "1", "[" * 100_000, '{"tasks": 1}', '{"collections": [1]}', "\x00"]
)
async def test_documents_that_are_none(body):
    for ask in (
        lambda access: Broker(access).resolve(["a:b"]),
        lambda access: Broker(access).search("a", 10),
        lambda access: Broker(access).report([]),
        lambda access: BrokerTasks(access).collections(),
        lambda access: BrokerTasks(access).listed(["ACTIVE"], 10),
        lambda access: BrokerTasks(access).one("1"),
    ):
        await refused(body, ask)


async def test_best_replicas_are_taken_from_a_very_long_list():
    replicas = [{**REPLICA, "url": f"ftp://h/{rank}", "rank": rank} for rank in reversed(range(1, 3001))]
    async with answering(f"{json.dumps({**LINE, 'replicas': replicas})}\n{END}") as port:
        (found,) = await Broker(BrokerAccess(f"http://127.0.0.1:{port}", None, None)).resolve(["a:b"])
    assert [replica.priority for replica in found.file.replicas] == list(range(1, 1001))
    assert len(found.expected) == 1000
    assert all(math.isfinite(replica.priority) for replica in found.file.replicas)


ASK = """
from coalloc.broker_client import Broker
from coalloc.config import BrokerAccess

async def ask(url):
    try:
        await Broker(BrokerAccess(url, None, None)).resolve(["a:b"])
    except CoallocError as error:
        print_error(error)

asyncio.run(ask(sys.argv[1]))
"""


async def endless(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    while True:
        writer.write(b"[]," * 20_000)
        await writer.drain()


@cache
def bomb():
    """Return a compressed answer of a gigabyte."""
    return gzip.compress(bytes(1 << 26)) * 16


async def packed(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb()))
    writer.write(bomb())
    await writer.drain()
    await reader.read()


async def lines(reader, writer):
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 15000000\r\n\r\n" + b"[]\n" * 5_000_000)
    await writer.drain()
    await reader.read()


@pytest.mark.parametrize("serve", [endless, packed, lines])
async def test_an_answer_without_end_takes_no_memory(serve):
    bomb()  # now, as it takes seconds, for which no client waits
    async with raw_server(serve) as port:
        output = await limited(ASK, f"http://127.0.0.1:{port}")
    assert output.startswith("NothingToFetchFrom |"), output
