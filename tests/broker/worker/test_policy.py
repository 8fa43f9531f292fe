"""Decisions without I/O: the next lane, the number of lanes, the meaning of an error.

Only measured copies of tasks are learnt.
"""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import Unavailable
from broker.models.lanes import CollectionPair, LaneCandidate, LaneTurn, OpenLane
from broker.models.tasks import Details, FilterRule, Options, Work
from broker.services.collections.trees import Naming
from broker.worker.policy.fairness import choose
from broker.worker.policy.faults import at_source, failed, pause, poisoned
from broker.worker.policy.lane_count import FIRST, MOST, PairTraffic, decide
from broker.worker.policy.selection import included, outdated
from broker.worker.transfer_records import Move, of_batch, of_sources
from coalloc.download.agreement import unusable
from coalloc.errors import (
    ConnectionLost,
    LoginRefused,
    NoSpace,
    NoSuchFile,
    PermissionRefused,
    SourceError,
    Unreachable,
    Unsupported,
    UsageError,
    VerificationError,
)
from coalloc.model.listings import Entry
from coalloc.model.reports import PartialCopy, SourceReport

HERE, THERE = CollectionPair("a", "b"), CollectionPair("c", "d")
TUNED = {HERE: 2, THERE: 2}
CAPS = dict.fromkeys("abcd")
COPY = Work(7, "0123abcd-0123-4567-89ab-0123456789ab", "copy", 0, "/x", "/x", 0, Details(), 1)
GB = 10**9


def candidate(
    task: str, owner: str = "ann", pair: CollectionPair = HERE, at: float = 0.0, **more: object
) -> LaneCandidate:
    fields = {"kind": "TRANSFER", "options": Options(), "priority": 0, "deadline": 100.0, "requested_at": at, **more}
    return LaneCandidate(task, owner, pair, **fields)


def test_the_user_with_the_fewest_lanes_is_next():
    lanes = [OpenLane("1", "ann", THERE)]
    choice = choose([candidate("1", "ann", at=0), candidate("2", "bob", at=5)], lanes, CAPS, TUNED)
    assert choice.candidate.task == "2"


@pytest.mark.parametrize("cap", [1, 2])
def test_users_take_turns_whatever_the_number_of_lanes(cap):
    """Each lane ends after one task, so that no user has more open lanes than another."""
    waiting = [candidate(f"ann {i}", "ann", at=i) for i in range(30)] + [candidate("bob", "bob", THERE, at=99)]
    waiting += [candidate(f"eve {i}", "eve", at=100 + i, deadline=50.0) for i in range(30)]
    lanes, turns, begun = [], [], []
    for now in range(1, 9):
        lanes = lanes[-cap + 1 :] if cap > 1 else []
        choice = choose(waiting, lanes, {"a": cap, "b": cap, "c": cap, "d": cap}, TUNED, turns).candidate
        begun.append(choice.owner)
        waiting = [each for each in waiting if each != choice]
        lanes.append(OpenLane(choice.task, choice.owner, choice.pair))
        turns = [each for each in turns if (each.owner, each.pair) != (choice.owner, choice.pair)]
        turns.append(LaneTurn(choice.owner, choice.pair, now))
    assert begun == ["ann", "bob", *("eve", "ann") * 3]


def test_a_user_who_is_busy_elsewhere_gets_turns_too():
    elsewhere, turns = [OpenLane(str(i), "ann", THERE) for i in range(5)], [LaneTurn("ann", THERE, 9.0)]
    waiting = [candidate("1", "ann"), candidate("2", "bob")]
    assert choose(waiting, elsewhere, CAPS, TUNED, [*turns, LaneTurn("bob", HERE, 8.0)]).candidate.owner == "ann"


def test_the_lanes_of_a_user_at_a_full_collection_count_together():
    lanes = [OpenLane("1", "ann", HERE), OpenLane("2", "ann", CollectionPair("c", "b")), OpenLane("3", "bob", HERE)]
    other = CollectionPair("d", "b")
    waiting = [candidate("4", "ann", other), candidate("5", "bob", other, at=9)]
    assert choose(waiting, lanes, {**CAPS, "b": 4}, TUNED | {other: 2}).candidate.owner == "bob"


def test_priority_comes_before_fairness_and_a_deadline_before_age():
    urgent = candidate("2", "ann", priority=1)
    assert choose([candidate("1", "bob"), urgent], [OpenLane("9", "ann", THERE)], CAPS, TUNED).candidate == urgent
    sooner = candidate("2", at=5, deadline=50.0)
    assert choose([candidate("1"), sooner], [], CAPS, TUNED).candidate == sooner


def test_a_full_collection_delays_only_its_own_tasks_and_gives_the_reason():
    lanes = [OpenLane("1", "ann", HERE)]
    choice = choose([candidate("1"), candidate("2", "ann", THERE)], lanes, {**CAPS, "b": 1}, TUNED)
    assert choice.candidate.task == "2"
    choice = choose([candidate("1")], lanes, {**CAPS, "b": 1}, TUNED, names={"b": "tape"})
    assert choice.waits == {"1": "tape has 1 running transfer, which is its limit"}


def test_a_guest_collection_counts_for_the_limit_of_its_host():
    lanes, shared = [OpenLane("1", "ann", HERE)], CollectionPair("guest", "d")
    tuned = {**TUNED, shared: 2}
    choice = choose([candidate("2", "bob", shared)], lanes, {**CAPS, "a": 1}, tuned, hosts={"guest": "a"})
    assert choice.waits == {"2": "guest has 1 running transfer, which is its limit"}
    lanes = [OpenLane("2", "bob", shared)]
    assert choose([candidate("1")], lanes, {**CAPS, "a": 1}, tuned, hosts={"guest": "a"}).candidate is None


def test_a_pair_has_as_many_lanes_as_help_unless_the_user_sets_more():
    lanes = [OpenLane("1", "ann", HERE)] * 2
    plain, eager = candidate("2"), candidate("3", options=Options(perf_cc=4))
    assert choose([plain], lanes, CAPS, TUNED).candidate is None
    assert choose([plain], lanes, CAPS, TUNED).waits["2"].startswith("this pair of collections has 2 running transfers")
    one = choose([plain], lanes[:1], CAPS, {HERE: 1}).waits["2"]
    assert one == "this pair of collections has 1 running transfer, and more would not be faster"
    assert choose([eager], lanes, CAPS, TUNED).candidate == eager
    assert choose([eager], [*lanes, *[OpenLane("3", "ann", HERE)] * 4], CAPS, TUNED).candidate is None


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([HERE, THERE])), max_size=12))
def test_caps_always_hold(asked):
    caps, lanes = {"a": 3, "b": 2, "c": None, "d": 4}, []
    waiting = [candidate(str(i), owner, pair) for i, (owner, pair) in enumerate(asked)]
    while found := choose(waiting, lanes, caps, {HERE: 9, THERE: 9}).candidate:
        lanes.append(OpenLane(found.task, found.owner, found.pair))
        waiting = [each for each in waiting if each != found]
    for end, cap in caps.items():
        assert cap is None or sum(end in lane.pair for lane in lanes) <= cap


def test_one_more_lane_is_tried_while_it_brings_more():
    busy = PairTraffic(100.0, 0.0, True)
    assert decide(FIRST, None, 0, 10.0, busy)[0] == FIRST + 1
    assert decide(3, busy, 1, 10.0, PairTraffic(120.0, 0.0, True)) == (
        4,
        "one more lane brought +20%: trying another",
    )
    assert decide(3, busy, 1, 10.0, PairTraffic(101.0, 0.0, True)) == (2, "one more lane brought +1%: removed again")
    assert decide(2, busy, -1, 10.0, busy)[0] == 2
    assert decide(2, busy, -1, 400.0, busy)[0] == 3
    assert decide(8, busy, 1, 10.0, PairTraffic(100.0, 0.3, True))[0] == 4
    assert decide(2, busy, 1, 10.0, PairTraffic(10.0, 0.0, False)) == (2, "not all lanes are in use")


@given(
    st.integers(1, MOST),
    st.floats(0, 1e9),
    st.sampled_from((-1, 0, 1)),
    st.floats(0, 1e4),
    st.floats(0, 1e9),
    st.floats(0, 1),
    st.booleans(),
)
def test_there_is_always_a_lane_and_never_too_many(now, before, tried, age, rate, failures, busy):
    wanted, reason = decide(now, PairTraffic(before, 0.0, True), tried, age, PairTraffic(rate, failures, busy))
    assert 1 <= wanted <= MOST
    assert reason


def test_lanes_settle_where_more_do_not_help():
    def rate(lanes: int) -> float:
        return 100.0 * min(lanes, 6)

    lanes, before, tried = FIRST, None, 0
    for _ in range(40):
        seen = PairTraffic(rate(lanes), 0.0, True)
        wanted, _ = decide(lanes, before, tried, 10.0, seen)
        if wanted != lanes or before is None:
            before, tried, lanes = seen, wanted - lanes, wanted
    assert lanes in (6, 7)


WORK = Work(1, "t", "copy", 0, "/a", "/b", 10, Details(), 1)


def test_an_error_is_tried_again_later_and_later_until_it_is_hopeless():
    lost, gone = ConnectionLost("x", ""), NoSuchFile("x", "")
    assert failed(WORK, lost, Options()).pause == 1.0
    assert failed(WORK._replace(attempt=50), lost, Options()).state == "pending"
    assert failed(WORK, gone, Options()).state == "pending"
    assert failed(WORK._replace(attempt=3), gone, Options()).state == "failed"
    assert failed(WORK._replace(attempt=3), VerificationError("x", ""), Options()).error_code == "VERIFY_CHECKSUM"
    assert failed(WORK._replace(attempt=3), UsageError("x", ""), Options()).state == "failed"
    assert [pause(attempt) for attempt in (1, 2, 8, 100)] == [1.0, 2.0, 120.0, 120.0]


def test_a_database_that_is_gone_for_a_while_is_waited_for():
    skip = Options(skip_source_errors=True)
    assert failed(WORK._replace(attempt=9), Unavailable("x"), skip).state == "pending"


def test_refusals_of_the_source_are_skipped_on_request():
    skip = Options(skip_source_errors=True)
    for error, state in ((NoSuchFile("x", ""), "skipped"), (ConnectionLost("x", ""), "pending")):
        with pytest.raises(SourceError) as caught, at_source():
            raise error
        assert failed(WORK, caught.value, skip).state == state
    assert failed(WORK, NoSuchFile("x", ""), skip).state == "pending"


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("cause", [NoSuchFile, Unsupported])
def test_a_dataset_that_no_source_has_is_skipped_on_request(replicas, cause):
    error = unusable(["ftp://a/x", "ftp://b/x"][:replicas], {i: cause("x", "") for i in range(replicas)})
    assert failed(WORK, error, Options(skip_source_errors=True)).state == "skipped"
    result = failed(WORK, error, Options())
    assert (result.state, result.side) == ("pending", "source")


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("cause", [NoSuchFile, LoginRefused, PermissionRefused, Unreachable, Unsupported])
def test_failures_of_the_destination_are_never_skipped(replicas, cause):
    causes = {i: cause("x", "") for i in range(replicas)}
    for each in causes.values():
        each.blame_destination()
    error = unusable(["ftp://a/x", "ftp://b/x"][:replicas], causes)
    result = failed(WORK, error, Options(skip_source_errors=True))
    assert (result.state, result.side) == ("pending", "destination")


def test_the_side_is_that_of_the_error_whose_code_is_reported():
    gone, refused = NoSuchFile("x", ""), LoginRefused("x", "")
    refused.blame_destination()
    result = failed(WORK, unusable(["ftp://a/x", "ftp://b/x"], {0: gone, 1: refused}), Options(skip_source_errors=True))
    assert (result.error_code, result.side) == ("AUTH", "destination")


def test_an_error_of_both_ends_is_not_skipped():
    error = NoSuchFile("x", "")
    error.blame_source()
    error.blame_destination()
    result = failed(WORK, error, Options(skip_source_errors=True))
    assert (result.state, result.side) == ("pending", "")


def test_a_full_disk_is_waited_for_unless_that_is_not_wanted():
    full = NoSpace("x", "")
    assert failed(WORK._replace(attempt=9), full, Options()).state == "pending"
    assert failed(WORK, full, Options(fail_on_quota_errors=True)).state == "failed"


def test_work_that_kills_workers_is_given_up():
    assert poisoned(WORK._replace(attempt=3, lost=3)).state == "failed"
    assert poisoned(WORK._replace(attempt=3, lost=2)) is None
    assert poisoned(WORK._replace(attempt=40, lost=1)) is None


def test_sync_levels():
    new, old = Entry("x", "file", 10, 200), Entry("x", "file", 10, 100)
    longer = Entry("x", "file", 11, 100)

    def needed(level: int | None, source: Entry, there: Entry | None) -> bool | None:
        return outdated(source, there, Options(sync_level=level))

    assert all(needed(level, new, None) for level in (None, 0, 1, 2, 3))
    assert [needed(level, new, old) for level in (None, 0, 1, 2, 3)] == [True, False, False, True, None]
    assert [needed(level, old, new) for level in (0, 1, 2, 3)] == [False, False, False, None]
    assert [needed(level, longer, old) for level in (0, 1, 2, 3)] == [False, True, True, True]


def test_the_first_rule_that_fits_decides():
    rules = (FilterRule(method="include", name="*.root"), FilterRule(method="exclude", name="*"))
    assert included("a.root", False, rules)
    assert not included("a.txt", False, rules)
    assert not included("a", True, rules)
    assert included("a", True, (FilterRule(method="exclude", name="*", type="file"),))


def report(*moments: tuple[float, float], size: int = GB, seconds: float = 6.0, idle: float = 4.0) -> SourceReport:
    """Return a source that was busy for this time, with copies that began and ended at these moments."""
    copies = tuple(PartialCopy(0, size, size, 0.0, first, last, last, "whole") for first, last in moments)
    return SourceReport("ftp://a/x", size, seconds, ranges=1, idle_seconds=idle, outcome="ok", copies=copies)


def test_it_was_busy_for_as_long_as_it_was_busy():
    """Idle time does not lower the rate."""
    (observed,) = of_sources(COPY, "here", time.time() - 10, [report((1.0, 6.0))], ())
    assert (observed.busy_seconds, observed.bytes) == (6.0, GB)


@pytest.mark.parametrize("size", [1000, GB, 10**15])
def test_bytes_that_arrived_in_one_moment_give_no_rate(size):
    """A server tells every few seconds how many bytes have arrived; no file fails for that."""
    assert of_sources(COPY, "here", time.time() - 10, [report((2.0, 2.0), size=size, seconds=0.001)], ()) == []


def test_impossible_rates_are_not_learnt():
    assert of_sources(COPY, "here", time.time() - 10, [report((1.0, 2.0), size=10**16, seconds=0.1)], ()) == []


def test_errors_of_servers_are_stored_without_their_directories():
    """A guest collection hides where it is at its server."""
    lost = report((1.0, 6.0))._replace(error=f"ftp://a:2811/tape/secret/{'x' * 20}: it says 426 /tape/secret/x")
    naming = Naming("guest", "/tape/secret/", "ftp://a:2811")
    (observed,) = of_sources(COPY, "here", time.time() - 10, [lost], [naming])
    assert observed.error == f"guest:/{'x' * 20}: it says 426 /x"
    (observed,) = of_sources(COPY, "here", time.time() - 10, [lost._replace(error=None)], [naming])
    assert observed.error is None


def test_a_batch_counts_only_the_time_in_which_data_moved():
    """The minute of comparing existing files does not count."""
    now = time.time()
    times = ((3, 9, 7), (2, 8, 5))
    moves = [Move(COPY._replace(id=i, size=GB, leases=7), now - begin, now - end) for i, begin, end in times]
    (observed,) = of_batch("ftp://a", "here", now - 60, moves, 4)
    assert (observed.bytes, observed.ranges, observed.streams) == (2 * GB, 2, 4)
    assert observed.busy_seconds == pytest.approx(4.0)
    assert observed.id.endswith(".2.7")


def test_a_batch_without_moved_data_gives_no_rate():
    assert of_batch("ftp://a", "here", time.time() - 60, [], 4) == []
