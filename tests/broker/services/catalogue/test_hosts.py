"""The cache of the IP addresses of hosts."""

import asyncio
import socket

import pytest

from broker.services.catalogue import hosts
from broker.services.catalogue.hosts import Hosts


async def test_a_full_cache_is_cleared_while_other_lookups_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller gets the addresses that were known when it asked."""
    begun, answered = asyncio.Event(), asyncio.Event()

    async def getaddrinfo(_: object, name: str, *how: object, **more: object) -> list[tuple[object, ...]]:
        if name == "slow.example":
            begun.set()
            await answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"192.0.2.{len(name)}", 0))]

    monkeypatch.setattr("asyncio.BaseEventLoop.getaddrinfo", getaddrinfo)
    monkeypatch.setattr(hosts, "MOST", 2)
    cache = Hosts()
    await cache.addresses(["known.example"])
    slow = asyncio.create_task(cache.addresses(["known.example", "slow.example"]))
    await begun.wait()
    await cache.addresses(["a.example", "bb.example"])
    assert await cache.addresses(["ccc.example"]) == {"ccc.example": ("192.0.2.11",)}
    answered.set()
    assert await slow == {"known.example": ("192.0.2.13",), "slow.example": ("192.0.2.12",)}
