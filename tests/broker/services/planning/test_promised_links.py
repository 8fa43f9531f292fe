"""The outlook of promises on shared links, without a database."""

import pytest

from broker.models.guarantees import PromisedLink
from broker.services.planning.promised_links import KnownLinks, Promising, decide, look, scale_left, unpromised
from coalloc.guarantees.deadline import PathRate
from coalloc.guarantees.finish_admission import AdmittedFinish, PromisedShare, RefusedFinish, SharedPath

LINKS = KnownLinks("DESY", "", {"ftp://a": PathRate(1e6, 0.2)}, {})
FULL = PromisedLink(1, "ftp://a", "DESY", "", PromisedShare(0.7e6, 0.0, 100.0))


def test_a_promise_that_begins_later_is_as_likely_at_its_next_look():
    wanted = Promising("ann", LINKS, 30_000_000, 150.0, 0.95)
    made = decide(wanted, [FULL], 0.0)
    assert isinstance(made, AdmittedFinish)
    assert made.since == 100.0
    own = PromisedLink(2, "ftp://a", "DESY", "", PromisedShare(made.shares[0], made.since, 150.0))
    younger = PromisedLink(3, "ftp://a", "DESY", "", PromisedShare(5e6, 100.0, 150.0))
    assert look(wanted, [FULL, own, younger], 10.0, 2).chance == pytest.approx(made.chance)


def test_what_was_not_promised_is_seen_as_it_would_be_promised():
    wanted = Promising("ann", LINKS, 90_000_000, 150.0, 0.95)
    refused = decide(wanted, [FULL], 0.0)
    assert isinstance(refused, RefusedFinish)
    assert look(wanted, [FULL], 0.0) == (refused.chance, refused.earliest)
    assert look(wanted._replace(bytes=0), [FULL], 0.0).chance == 1.0


def test_shares_of_other_links_and_servers_do_not_count():
    elsewhere = [FULL._replace(sink="CERN"), FULL._replace(source="ftp://b"), FULL._replace(server="ftp://c")]
    wanted = Promising("ann", LINKS, 60_000_000, 100.0, 0.95)
    assert isinstance(decide(wanted, elsewhere[:2], 0.0), AdmittedFinish)
    assert isinstance(decide(wanted, elsewhere, 0.0), RefusedFinish)  # the same link, to a server at its end
    limited = wanted._replace(links=LINKS._replace(server="ftp://d", capacities={"ftp://d": 0.5e6}))
    assert isinstance(decide(limited, [], 0.0), RefusedFinish)


def test_shares_shrink_when_a_transfer_is_ahead_and_never_grow():
    assert scale_left(50, 100.0, 0.0, 1.0, 0.0) == 0.5
    assert scale_left(500, 100.0, 0.0, 1.0, 0.0) == 1.0
    assert scale_left(50, 100.0, 50.0, 1.0, 0.0) == 1.0
    assert scale_left(50, 100.0, 0.0, 1.0, 100.0) == 1.0
    assert scale_left(50, 100.0, 0.0, 0.0, 0.0) == 1.0


def test_others_may_use_what_a_link_probably_has_beside_the_promises():
    link, server = PathRate(1e6, 0.2), "ftp://a"
    assert unpromised(SharedPath(link), 0.0) is None
    (path,) = LINKS.paths([FULL._replace(share=FULL.share._replace(rate=0.3e6))])
    left = unpromised(path, 0.0)
    assert left is not None
    assert 0.2e6 < left < 0.7e6  # the link has less than 1 MB/s at times
    (full,) = LINKS.paths([FULL, FULL])
    assert unpromised(full, 0.0) == pytest.approx(0.05e6)  # a little is always left
    assert unpromised(full, 0.4e6) == 0.4e6  # its own promise counts
    elsewhere = [FULL._replace(sink="CERN")]
    (limited,) = LINKS._replace(capacities={server: 0.9e6}).paths(elsewhere)
    assert unpromised(limited, 0.0) == pytest.approx(0.2e6)  # what the server's interface has left
    (other,) = LINKS.paths(elsewhere)
    assert unpromised(other, 0.0) is None
