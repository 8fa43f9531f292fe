"""Networks from measurements, from a broker's forecasts, and from several sources together."""

import time

import pytest

from coalloc.broker_client import Broker
from coalloc.config import BrokerAccess
from coalloc.history.links import EVERYBODY, MeasuredLink, observations
from coalloc.planner import Host, Isp, Link, LinkKey, Network
from coalloc.planner.network import joined
from coalloc.probing.survey import expected_network, measured_network
from tests.support.broker import broker_in
from tests.support.waiting import until

MB = 1_000_000
NOW = 1_700_000_000.0
URLS = {"a": "ftp://a.example", "b": "gsiftp://b.example:2811/", "c": "ftp://c.example:2121"}
A, B, C = "ftp://a.example", "gsiftp://b.example", "ftp://c.example:2121"


def seen(*rows):
    return observations(MeasuredLink(a, b, NOW - 101, NOW - 100, rate) for a, b, rate in rows)


def test_links_have_what_was_measured_with_its_age():
    known = seen((A, B, 5 * MB), (B, A, 7 * MB), (A, "ftp://other", MB), (A, EVERYBODY, 20 * MB), (EVERYBODY, A, MB))
    network = measured_network(URLS, known, NOW)
    assert set(network.links) == {LinkKey("a", "b"), LinkKey("b", "a")}
    link = network.links[LinkKey("a", "b")]
    assert (link.capacity, link.age) == (5 * MB, 100.0)
    assert link.bounds[0] <= link.capacity <= link.bounds[1]
    assert network.hosts == {"a": Host("a", (Isp("", 20 * MB, MB),)), "b": Host("b"), "c": Host("c")}


def test_many_measurements_give_bounds():
    rows = [
        MeasuredLink(A, B, NOW - 2000 + 10 * i, NOW - 1999 + 10 * i, (100 + 37 * i % 20) * MB // 10) for i in range(100)
    ]
    link = measured_network(URLS, observations(rows), NOW).links[LinkKey("a", "b")]
    low, high = link.bounds
    assert 9 * MB <= low < link.capacity < high <= 13 * MB


def test_a_network_is_filled_in_from_another():
    ab, ba = LinkKey("a", "b"), LinkKey("b", "a")
    own = Network.of((Host("a", (Isp("x", up=5),)), Host("b", storage=7)), (Link(LinkKey("a", "b", "x"), 1),))
    other = Network.of((Host("a", (Isp("", up=9),), io=3), Host("b"), Host("c")), (Link(ab, 2), Link(ba, 3)))
    both = joined(own, other)
    assert both.hosts == {"a": Host("a", (Isp("x", up=5),), io=3), "b": Host("b", storage=7), "c": Host("c")}
    assert both.links == {LinkKey("a", "b", "x"): Link(LinkKey("a", "b", "x"), 1)}
    plain = Network.of((Host("a"), Host("b")), (Link(ab, 1),))
    assert joined(plain, other).links == {ab: Link(ab, 1), ba: Link(ba, 3)}


async def test_forecasts_of_a_broker_become_links(tmp_path):
    with broker_in(tmp_path) as running:
        now = time.time()
        reports = [
            {"id": f"{i}", "source": A, "sink": B, "started": now - 99 + i, "ended": now - 98 + i, "bytes": 30 * MB}
            for i in range(50)
        ]
        assert running.client().post("/broker/v1/transfers", json=reports).status_code == 200
        broker = Broker(BrokerAccess(running.url, running.token, None))

        async def known():
            network = await expected_network(URLS, broker)
            return network if network.links else None

        network = await until(known)
    link = network.links[LinkKey("a", "b")]
    assert link.capacity == pytest.approx(30 * MB, rel=0.2)
    assert link.age is not None
