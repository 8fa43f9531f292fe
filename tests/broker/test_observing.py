"""Observations from copies of tasks: only measured transfers count."""

import time

import pytest

from broker.models.tasks import Details, Work
from broker.worker.transfer_records import Move, of_batch, of_sources
from coalloc.model import PartialCopy, SourceReport

WORK = Work(7, "0123abcd-0123-4567-89ab-0123456789ab", "copy", 0, "/x", "/x", 0, Details(), 1)
GB = 10**9


def report(*moments: tuple[float, float], size: int = GB, seconds: float = 6.0, idle: float = 4.0) -> SourceReport:
    """Return a source that was busy for this long, and delivered in copies with these first and last moments."""
    copies = tuple(PartialCopy(0, size, size, 0.0, first, last, last, "whole") for first, last in moments)
    return SourceReport("ftp://a/x", size, seconds, ranges=1, idle_seconds=idle, outcome="ok", copies=copies)


def test_it_was_busy_for_as_long_as_it_was_busy():
    """Idle time does not shorten busy time."""
    (observed,) = of_sources(WORK, "here", time.time() - 10, [report((1.0, 6.0))])
    assert (observed.busy_seconds, observed.bytes) == (6.0, GB)


@pytest.mark.parametrize("size", [1000, GB, 10**15])
def test_what_came_at_one_moment_tells_no_rate(size):
    """A server reports every few seconds how many bytes have arrived; no file fails because of that."""
    assert of_sources(WORK, "here", time.time() - 10, [report((2.0, 2.0), size=size, seconds=0.001)]) == []


def test_what_no_network_carries_is_not_learnt():
    assert of_sources(WORK, "here", time.time() - 10, [report((1.0, 2.0), size=10**16, seconds=0.1)]) == []


def test_of_a_batch_the_time_counts_in_which_something_was_moved():
    """A minute in which existing files were compared does not count."""
    now = time.time()
    times = ((3, 9, 7), (2, 8, 5))
    moves = [Move(WORK._replace(id=i, size=GB, leases=7), now - begin, now - end) for i, begin, end in times]
    (observed,) = of_batch("ftp://a", "here", now - 60, moves, 4)
    assert (observed.bytes, observed.ranges, observed.streams) == (2 * GB, 2, 4)
    assert observed.busy_seconds == pytest.approx(4.0)
    assert observed.id.endswith(".2.7")


def test_a_batch_in_which_nothing_was_moved_tells_nothing():
    assert of_batch("ftp://a", "here", time.time() - 60, [], 4) == []
