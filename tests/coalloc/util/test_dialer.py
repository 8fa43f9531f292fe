"""Connections for engines, and errors when there is none."""

import re
import socket

import pytest

from coalloc.errors import PermissionRefused, UnknownHost, Unreachable
from coalloc.util.addresses import AddressClass, AddressPolicy, parse_networks
from coalloc.util.dialer import DirectDialer, refuse_numeric, round_trip
from tests.support.fetching import IPV6


@pytest.mark.parametrize("host", ["127.0.0.1", IPV6, "localhost"])
async def test_a_connection_is_ready_for_the_loop(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server(("127.0.0.1" if host == "localhost" else host, 0), family=family) as listener:
        sock = await DirectDialer().dial(host, listener.getsockname()[1], 5)
        peer, address = listener.accept()
        with sock, peer:
            assert not sock.getblocking()
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            assert address[:2] == sock.getsockname()[:2]
            assert round_trip(sock) > 0
            assert round_trip(listener) is None  # it has no other end


def test_a_socket_without_round_trips():
    one, other = socket.socketpair()
    with one, other:
        assert round_trip(one) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
async def test_a_closed_port(host):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=f"{host}:{port} refused") as caught:
        await DirectDialer().dial(host, port, 5)
    assert not caught.value.permanent


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a..b", "\N{LATIN SMALL LETTER E WITH ACUTE}..b"])
async def test_no_such_host(host):
    with pytest.raises(UnknownHost, match=re.escape(host)):
        await DirectDialer().dial(host, 21, 5)


@pytest.mark.parametrize("port", [0, 65536 + 22, 1 << 70])
async def test_no_such_port(port):
    with pytest.raises(Unreachable, match="no such port"):
        await DirectDialer().dial("127.0.0.1", port, 1.0)


async def test_no_answer():
    """A listener whose queue is full drops connections, as a firewall does."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        address = listener.getsockname()
        waiting = []
        for _ in range(3):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(address)
            waiting.append(sock)
        with pytest.raises(Unreachable, match=r"did not answer within 0\.3 s"):
            await DirectDialer().dial(address[0], address[1], 0.3)
        for sock in waiting:
            sock.close()


async def test_only_allowed_addresses_are_connected_to():
    policy = AddressPolicy(AddressClass.PUBLIC, parse_networks(["127.0.0.8"]))
    with socket.create_server(("127.0.0.7", 0)) as inner, socket.create_server(("127.0.0.8", 0)) as open_to_us:
        with pytest.raises(PermissionRefused, match=r"127\.0\.0\.7 is of this machine"):
            await DirectDialer(policy).dial("127.0.0.7", inner.getsockname()[1], 5)
        (await DirectDialer(policy).dial("127.0.0.8", open_to_us.getsockname()[1], 5)).close()


async def test_a_host_that_was_looked_up_before_is_connected_at_the_addresses_that_it_had_then():
    policy = AddressPolicy().pin({"Led.Invalid.": ("127.0.0.7",)}).pin({"other.invalid": ("127.0.0.8",)})
    with socket.create_server(("127.0.0.7", 0)) as listener:
        dialer = DirectDialer(policy)
        assert await dialer.addresses("led.invalid") == {"127.0.0.7"}
        (await dialer.dial("led.invalid", listener.getsockname()[1], 5)).close()
        with pytest.raises(PermissionRefused, match="this machine"):
            await dialer.under(policy._replace(innermost=AddressClass.PUBLIC)).dial("led.invalid", 1, 5)


@pytest.mark.parametrize("host", ["127.1", "0x7f000001", "2130706433", "017700000001", "::1", "::ffff:127.0.0.1"])
async def test_no_spelling_of_an_address_gets_around_the_policy(host):
    public = AddressPolicy(AddressClass.PUBLIC)
    with pytest.raises(PermissionRefused, match=re.escape(host)):
        await DirectDialer(public).dial(host, 21, 5)
    with pytest.raises(PermissionRefused, match=re.escape(host)):
        refuse_numeric(host, 21, public)


@pytest.mark.parametrize(
    "host",
    [
        *(
            "fe80::1%eth9",
            "fe80::1%25eth9",
            "::1%25lo",
            "127.0.0.1%20",
            "127.0.0.1%00",
            "%31%32%37.0.0.1",
            "127.0.0.1%2e",
        ),
        *("ip6-localhost", "localhost.localdomain", "Localhost6.", "x.localhost", "localhost%2E"),
    ],
)
def test_hosts_that_a_proxy_may_read_as_internal_are_refused(host):
    with pytest.raises(PermissionRefused):
        refuse_numeric(host, 80, AddressPolicy(AddressClass.PUBLIC))


async def test_only_allowed_addresses_of_a_name_are_connected_to(monkeypatch):
    """The name is resolved only once: the second answer would differ."""
    answers = [["127.0.0.7", "127.0.0.8", "169.254.169.254"], ["127.0.0.7"]]

    async def getaddrinfo(self, host, port, **how):
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in answers.pop(0)]

    monkeypatch.setattr("asyncio.BaseEventLoop.getaddrinfo", getaddrinfo)
    dialer = DirectDialer(AddressPolicy(AddressClass.PUBLIC, parse_networks(["127.0.0.8"])))
    with socket.create_server(("127.0.0.8", 0)) as listener:
        with await dialer.dial("rebinding.example", listener.getsockname()[1], 5) as sock:
            assert sock.getpeername()[0] == "127.0.0.8"
        assert await dialer.addresses("rebinding.example") == {"127.0.0.8"}
        with pytest.raises(PermissionRefused, match=r"rebinding.example has the address 127\.0\.0\.7"):
            await dialer.dial("rebinding.example", listener.getsockname()[1], 5)
