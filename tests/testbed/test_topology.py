"""Topologies: reading of files, error messages, and routes of packets."""

from pathlib import Path

import pytest
import yaml

from tests.testbed.settings import Bursts, Cross, Settings
from tests.testbed.topology import TOPOLOGIES, Topology, TopologyError


def topology(text: str) -> Topology:
    return Topology.load(yaml.safe_load(text))


def link(**words: object) -> Settings:
    return Topology.load({"links": {"a-b": {"rate": "80mbit", **words}}}).links[0].ab


def test_a_link_has_what_is_written_and_sensible_defaults():
    full = link(
        delay="10ms",
        jitter="500us",
        queue="64kb",
        loss="0.1%",
        bursts={"start": "1%", "end": "20%"},
        cross={"rate": "8mbit", "busy": "1s", "quiet": "2s"},
    )
    assert full == Settings(10e6, 0.01, 0.0005, 64_000, 0.001, Bursts(0.01, 0.2, 1.0), Cross(1e6, 1.0, 2.0))
    assert link() == Settings(10e6, 0.0, 0.0, 500_000, 0.0)


def test_a_queue_in_time_is_what_the_link_sends_in_it():
    assert link(queue="100ms").queue == 1_000_000
    assert link(queue="1us").queue == 3000  # the smallest queue: two packets


def test_each_direction_may_differ():
    (both,) = topology("links: {a-b: {rate: 10mbit, delay: 5ms, ba: {rate: 1mbit, loss: 1%}}}").links
    assert (both.ab.rate, both.ab.delay, both.ab.loss) == (1.25e6, 0.005, 0.0)
    assert (both.ba.rate, both.ba.delay, both.ba.loss) == (0.125e6, 0.005, 0.01)


def test_a_change_keeps_the_rest_and_the_bytes_of_the_queue():
    before = link(delay="10ms", queue="50ms", loss="1%")
    after = before.changed(rate="8mbit", loss="0%")
    assert (after.rate, after.delay, after.queue, after.loss) == (1e6, 0.01, before.queue, 0.0)
    assert before.changed(rate="8mbit", queue="50ms").queue == before.queue // 10


def test_a_part_of_a_link_can_be_ended():
    assert link(cross={"rate": "1mbit"}).changed(cross=None).cross is None


def test_hosts_come_in_the_order_of_the_links():
    assert topology("links: {b-a: {rate: 1mbit}, a-c: {rate: 1mbit}}").hosts == ("b", "a", "c")


def test_packets_go_the_soonest_way():
    ring = topology(
        """
        links:
          a-b: {rate: 1mbit, delay: 50ms}
          b-c: {rate: 1mbit, delay: 10ms}
          c-a: {rate: 1mbit, delay: 10ms}
          c-d: {rate: 1mbit, delay: 1ms}
          x-y: {rate: 1mbit}
        """
    )
    assert ring.routes("a") == {"b": "c", "c": "c", "d": "c"}
    assert ring.routes("b") == {"a": "c", "c": "c", "d": "c"}
    assert ring.routes("x") == {"y": "y"}


def test_shorter_of_two_equally_fast_routes_is_taken():
    near = topology("links: {a-b: {rate: 1mbit}, b-c: {rate: 1mbit}, a-c: {rate: 1mbit}}")
    assert near.routes("a") == {"b": "b", "c": "c"}


def test_congestion_control_is_that_of_all_or_of_each():
    links = "links: {a-b: {rate: 1mbit}}"
    assert topology(links).congestion == {"a": "cubic", "b": "cubic"}
    assert topology(f"{links}\ncongestion: bbr").congestion == {"a": "bbr", "b": "bbr"}
    assert topology(f"{links}\ncongestion: {{b: reno}}").congestion == {"a": "cubic", "b": "reno"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "no links; write for example"),
        ("links: {a-b: {delay: 1ms}}", "a-b.ab: has no rate"),
        ("links: {a-b: {rate: 100}}", "a-b.ab: rate: 100 is not understood; write for example 400mbit"),
        ("links: {a-b: {rate: 0mbit}}", "a-b.ab: rate: must be more than 0"),
        ("links: {a-b: {rate: 1mbit, delay: 5}}", "delay: 5 is not understood; write for example 10ms"),
        ("links: {a-b: {rate: 1mbit, loss: 101%}}", "loss: '101%' is more than 100%"),
        ("links: {a-b: {rate: 1mbit, queue: 5 apples}}", "queue: '5 apples' is not understood"),
        ("links: {a-b: {rate: 1mbit, dealy: 5ms}}", "unknown: dealy; a link has rate, delay"),
        ("links: {a-b: {rate: 1mbit, ba: {dealy: 5ms}}}", "a-b.ba: unknown: dealy"),
        ("links: {a-b: {rate: 1mbit, cross: 5mbit}}", "cross: '5mbit' is not a mapping of rate, busy, quiet"),
        ("links: {a-b: {rate: 1mbit, cross: {busy: 1s}}}", "cross: {'busy': '1s'}: rate is missing"),
        ("links: {a-b: {rate: 1mbit, bursts: {start: 1%}}}", "bursts: {'start': '1%'}: end is missing"),
        ("links: {a-b-c: {rate: 1mbit}}", "a-b-c: a link is called FIRST-SECOND"),
        ("links: {a-a: {rate: 1mbit}}", "a-a: a link is called FIRST-SECOND"),
        ("links: {a-averyverylongname: {rate: 1mbit}}", "of up to 11 letters and digits"),
        ("links: {a-b: 1mbit}", "a-b: not a mapping"),
        ("links: {a-b: {rate: 1mbit, ab: 2mbit}}", "a-b.ab: not a mapping"),
        ("links: {a-b: {rate: 1mbit}}\nhosts: [a, b]", "unknown: hosts"),
        ("links: {a-b: {rate: 1mbit}, b-a: {rate: 1mbit}}", "b-a: there is a link a-b already"),
        ("links: {a-b: {rate: 1mbit}}\ncongestion: fast", "'fast' is not one of bbr, cubic, reno"),
        ("links: {a-b: {rate: 1mbit}}\ncongestion: {c: bbr}", "congestion: no link names a host c"),
        ("links: {a-b: {rate: 1mbit}}\nseed: some", "seed: 'some' is not a number"),
    ],
)
def test_invalid_entries_are_refused_with_their_place(text: str, message: str):
    with pytest.raises(TopologyError) as caught:
        topology(text)
    assert message in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path):
    with pytest.raises(TopologyError, match=r"nowhere\.yaml: no such file; there are collect, distant, far, hetero"):
        Topology.load("nowhere")
    (tmp_path / "bad.yaml").write_text("links: {a-b: {")
    with pytest.raises(TopologyError, match=r"bad\.yaml: "):
        Topology.load(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- a")
    with pytest.raises(TopologyError, match=r"list\.yaml: not a mapping"):
        Topology.load(tmp_path / "list.yaml")


@pytest.mark.parametrize("path", sorted(TOPOLOGIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_ours_can_be_read_and_every_source_reaches_the_client(path: Path):
    ours = Topology.load(path.stem)
    assert ours.name == path.stem
    sink = "t" if path.stem == "collect" else "client"
    assert set(ours.routes(sink)) == set(ours.hosts) - {sink}
    assert {sink, "a" if sink == "t" else "s1"} <= set(ours.hosts)
