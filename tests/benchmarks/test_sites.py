"""Small runs of the `coget collect` benchmark on a real WAN: plans are made and carried out as the network file says.

How much faster they are is for the benchmark, and for simulations (tests/simulation), which no other load disturbs.
"""

from pathlib import Path

import pytest

from tests.benchmarks.sites import Site, Situation, collected

pytestmark = pytest.mark.wan

SMALL = 6_000_000


def test_relays_bypass_a_congested_link(tmp_path: Path):
    run = collected(Situation("the link from a to t is congested", size=SMALL), "adaptive", None, Site(tmp_path))
    assert run.relayed > 0


def test_nothing_is_relayed_all_at_once(tmp_path: Path):
    congested = Situation("the link from a to t is congested", size=SMALL // 3)
    assert collected(congested, "all-at-once", None, Site(tmp_path)).relayed == 0


def test_direct_is_used_and_reported_if_no_relay_is_faster(tmp_path: Path):
    alike = Situation("all ways to t are alike", size=SMALL // 3, inward="25mbit")
    # Later a link may seem slow on a busy machine, and its files may then be relayed: this is the plan at the start.
    assert collected(alike, "adaptive", None, Site(tmp_path)).rationale.startswith("direct")
