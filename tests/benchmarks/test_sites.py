"""Small runs of the `coget collect` benchmark on a real WAN: it uses relays only if they are faster."""

from pathlib import Path

import pytest

from tests.benchmarks.sites import Site, Situation, collected

pytestmark = pytest.mark.wan

SMALL = 6_000_000


def test_relays_bypass_a_congested_link(tmp_path: Path):
    congested = Situation("the link from a to t is congested", size=SMALL)
    straight, adaptive = (collected(congested, method, None, Site(tmp_path)) for method in ("all-at-once", "adaptive"))
    assert straight.relayed == 0
    assert adaptive.relayed > 0.1
    # The plans take 4 s with relays and 10 s without; a busy machine slows down both about equally.
    assert adaptive.seconds < straight.seconds


def test_direct_is_used_and_reported_if_no_relay_is_faster(tmp_path: Path):
    alike = Situation("all ways to t are alike", size=SMALL // 3, inward="25mbit")
    run = collected(alike, "adaptive", None, Site(tmp_path))
    assert run.relayed < 0.1  # on a busy machine a link may seem slow
    assert run.rationale.startswith("direct")
