"""The findings of the co-allocation paper (section 4.3), and those of `adaptive`, in virtual time.

The experiments are those of `tests.benchmarks.paper`, which also runs them on real servers.
"""

from collections.abc import Sequence

import pytest

from tests.benchmarks.paper.experiments import EXPERIMENTS
from tests.benchmarks.paper.measures import Records
from tests.benchmarks.paper.virtual import run_virtually
from tests.support.effort import effort

SIZE = 1000
SEEDS = (1, 2, 3)
FEW = SEEDS[: effort(1, 3)]
"""Seeds of tests that also hold for single runs."""


def records(name: str, schemes: Sequence[str], size: int = SIZE, seeds: Sequence[int] = SEEDS) -> Records:
    """Return an experiment's single servers and these schemes."""
    experiment = EXPERIMENTS[name]
    chosen = [scheme for scheme in experiment.schemes if scheme.server or scheme.name in schemes]
    return Records(experiment, [run_virtually(experiment, scheme, size, seed) for scheme in chosen for seed in seeds])


@pytest.mark.long
def test_with_two_slow_servers_all_schemes_gain():
    schemes = ("brute", "history", "conservative-5", "aggressive-5", "adaptive")
    runs = records("isi+ufl-anl", schemes, seeds=FEW)
    gains = {scheme: runs.gain(scheme, SIZE).mean for scheme in schemes}
    assert all(gain > 1.4 for gain in gains.values())
    assert max(gains, key=gains.__getitem__) == "adaptive"


@pytest.mark.long
def test_beside_a_fast_server_a_slow_one_adds_little_and_only_brute_loses_much():
    schemes = ("brute", "history", "aggressive-15", "adaptive")
    runs = records("lbl+ufl-anl", schemes, seeds=FEW)
    gains = {scheme: runs.gain(scheme, SIZE).mean for scheme in schemes}
    assert gains.pop("brute") < 0.6
    assert all(0.9 < gain < 1.15 for gain in gains.values())
    assert gains["adaptive"] >= 1


@pytest.mark.long
@pytest.mark.parametrize("name", ["lbl+lbl-anl", "isi+isi-ufl"])
def test_behind_one_bottleneck_nothing_is_gained_and_little_lost(name: str):
    schemes = ("brute", "conservative-5", "aggressive-5", "adaptive")
    runs = records(name, schemes, seeds=FEW)
    for scheme in schemes:
        assert 0.97 < runs.gain(scheme, SIZE).mean < 1.01


def test_few_blocks_are_for_small_files_and_many_for_large_ones():
    schemes = ("conservative-5", "conservative-15")
    small, large = (records("anl+isi-ufl", schemes, size) for size in (10, SIZE))
    assert small.gain("conservative-5", 10).mean > small.gain("conservative-15", 10).mean
    assert large.gain("conservative-5", SIZE).mean < large.gain("conservative-15", SIZE).mean


def test_the_faster_server_waits_less_from_scheme_to_scheme():
    runs = records("anl+isi-ufl", ("conservative-5", "conservative-10", "aggressive-5", "aggressive-10", "adaptive"))
    conservative, aggressive, adaptive = (
        runs.idle_of_all(strategy, SIZE).mean for strategy in ("conservative", "aggressive", "adaptive")
    )
    assert runs.idle("conservative-5", SIZE).mean > 0.1
    assert aggressive < 0.8 * conservative
    assert adaptive <= 0.01
