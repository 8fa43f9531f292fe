"""Tests of the simulated paths and schedules of the benchmark of guaranteed streams; they need no traces."""

from random import Random

import numpy as np
import pytest

from tests.benchmarks.streams.experiments import EXPERIMENTS, FRAMES
from tests.benchmarks.streams.rivals import POLICIES
from tests.benchmarks.streams.simulation import simulate
from tests.benchmarks.streams.traces import KNOWN, CrossedPath

SECONDS = 12


def paths(chance: Random, mean: float, spread: float) -> dict[str, CrossedPath]:
    """Return two paths whose rates vary around a mean in Mbit/s."""
    return {
        name: CrossedPath([(mean + chance.uniform(-spread, spread)) * 1e6 / 8 for _ in range(KNOWN + SECONDS)], offset)
        for name, offset in (("A", 0.37), ("B", 0.71))
    }


def test_a_path_sends_what_its_rates_allow() -> None:
    chance = Random(1)
    path = paths(chance, 50.0, 40.0)["A"]
    for _ in range(200):
        begin, size = chance.uniform(0, SECONDS - 1), chance.uniform(1, 1e6)
        assert path.moved(path.end(begin, size)) - path.moved(begin) == pytest.approx(size)
    assert path.moved(0.37) == pytest.approx(0.37 * path.past[-1])
    assert path.moved(1.37) - path.moved(0.37) == pytest.approx(path.rates[0])


@pytest.mark.parametrize("schedule", POLICIES)
def test_each_schedule_uses_all_of_the_paths_and_sends_every_packet_once(schedule: str) -> None:
    experiment = EXPERIMENTS["IV"]
    network = paths(Random(2), 68.5, 8.0)
    found = simulate(POLICIES[schedule](experiment.feeds, list(network)), experiment.feeds, network, SECONDS, 0)
    total = sum(stream.rates(SECONDS).sum() for stream in found.values())
    possible = sum(path.moved(SECONDS) for path in network.values()) * 8e-6
    assert total == pytest.approx(possible, rel=0.01)
    for stream in found.values():
        assert sorted(stream.ends) == list(range(len(stream.ends)))


def test_guaranteed_streams_keep_their_rate_where_fair_shares_do_not() -> None:
    experiment = EXPERIMENTS["IV"]
    rates = {}
    for schedule in ("round robin", "PGOS"):
        network = paths(Random(3), 68.5, 25.0)
        found = simulate(POLICIES[schedule](experiment.feeds, list(network)), experiment.feeds, network, SECONDS, 0)
        rates[schedule] = found["DT1"].rates(SECONDS)
    assert rates["PGOS"].min() >= 0.999 * 34.56
    assert np.quantile(rates["round robin"], 0.2) < 0.97 * 34.56


def test_frames_have_their_mean_rate() -> None:
    for feed in EXPERIMENTS["V"].feeds:
        packets = sum(feed.frames(400, 1))
        assert packets * feed.packet / 400 == pytest.approx(feed.target * 1e6 / 8, rel=0.05)
        assert len(feed.frames(3, 1)) == 3 * FRAMES
