"""Files that are replaced during and between fetches: the result is one version, complete."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.errors import CoallocError, ReplicaChanged, TransferFailed
from coalloc.model.forecasts import Estimate
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import TransferReport
from coalloc.schedule.policies import NAMES, make
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run

SIZE = 300_000
VERSIONS = [random.Random(seed).randbytes(SIZE) for seed in range(3)]
FOREVER = float("inf")


def replica(rate: float = 2e5, at: Sequence[float] = (), **more) -> Behaviour:
    """A replica that has the next version from each of these seconds on."""
    return Behaviour(rates=((0.0, rate),), becomes=tuple(zip(at, VERSIONS[1:], strict=False)), **more)


async def fetch(target: Path, replicas: dict[str, Behaviour], seconds: float = FOREVER, strategy: str = "adaptive"):
    """Run coget once, and kill it after this many seconds."""
    sources = [SimulatedSource(name, VERSIONS[0], behaviour) for name, behaviour in replicas.items()]
    file = ReplicaSet(target.name, tuple(Replica(source.url) for source in sources))
    download = Download(file, sources, [Estimate()] * len(sources), target, DownloadSettings(make(strategy)))
    with suppress(TimeoutError):
        async with asyncio.timeout(None if seconds == FOREVER else seconds):
            return await download.run()


def runs(target: Path, *runs: tuple[dict[str, Behaviour], float], strategy: str = "adaptive", pause: float = 0.0):
    """Run coget several times on one clock, with pauses between; return the report of the last run."""

    async def all_of_them() -> TransferReport | None:
        for replicas, seconds in runs[:-1]:
            with suppress(CoallocError):
                await fetch(target, replicas, seconds, strategy)
            await asyncio.sleep(pause)
        return await fetch(target, *runs[-1], strategy)

    return run(all_of_them())


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


@pytest.mark.parametrize("first", ["a", "b"])
def test_both_are_replaced_between_two_runs_and_another_one_answers_first(target, first):
    def both(slow: str) -> dict[str, Behaviour]:
        return {name: replica(at=[2.0], connect_seconds=1.0 if name == slow else 0.1) for name in "ab"}

    runs(target, (both("a"), 1.2), (both(first), FOREVER), pause=1.0)
    assert target.read_bytes() == VERSIONS[1]


def test_a_new_place_answers_before_those_that_were_replaced(target):
    old = {name: replica(at=[1.0]) for name in "ab"}
    new = {"c": replica(at=[1.0], connect_seconds=0.01), **old}
    runs(target, (old, 0.6), (new, FOREVER), pause=1.0)
    assert target.read_bytes() == VERSIONS[1]


def test_bytes_of_a_lost_source_that_cannot_confirm_them_are_fetched_again(target):
    then = {"a": replica(connect_seconds=3.0), "b": replica()}
    now = {"a": replica(at=[0.0]), "b": replica(dies_at=0.0)}
    runs(target, (then, 1.0), (now, FOREVER))
    assert target.read_bytes() == VERSIONS[1]


def test_one_that_did_not_change_is_gone_on_with_and_one_that_did_is_left_out(target):
    both = {"a": replica(at=[1.2], connect_seconds=0.01), "b": replica()}
    report = runs(target, (both, 0.7), (both, FOREVER), pause=1.0)
    assert target.read_bytes() == VERSIONS[0]
    assert report.resumed_bytes > 0
    assert report.sources[0].outcome == "failed"
    assert "changed since the fetch began" in report.sources[0].error


def test_file_replaced_during_a_fetch_is_fetched_from_others(target):
    replicas = {"a": replica(at=[0.7], in_place=True), "b": replica()}
    report = runs(target, (replicas, FOREVER))
    assert target.read_bytes() == VERSIONS[0]
    assert "fetched again" in report.notice
    assert [source.outcome for source in report.sources] == ["failed", "ok"]


def test_a_file_that_is_replaced_everywhere_is_refused_and_fetched_anew_by_the_next_run(target):
    replicas = {name: replica(at=[0.7]) for name in "ab"}
    with pytest.raises(ReplicaChanged, match="changed while it was fetched"):
        runs(target, (replicas, FOREVER))
    assert not target.exists()
    report = runs(target, ({name: replica(at=[0.0]) for name in "ab"}, FOREVER))
    assert target.read_bytes() == VERSIONS[1]
    assert report.resumed_bytes == 0


def test_bytes_of_a_server_lost_at_the_end_are_kept_for_the_next_run(target):
    with pytest.raises(TransferFailed, match="did not change while"):
        runs(target, ({"a": replica(dies_at=1.575)}, FOREVER))
    report = runs(target, ({"a": replica()}, FOREVER))
    assert target.read_bytes() == VERSIONS[0]
    assert report.resumed_bytes == SIZE


def test_file_changed_and_changed_back_between_two_runs_is_not_mixed(target):
    with pytest.raises(ReplicaChanged):
        runs(target, ({"a": replica(4e4, at=[0.0, 1.0], in_place=True, dies_at=2.0, returns_at=3.0)}, FOREVER))
    report = runs(target, ({"a": replica(at=[0.0])}, FOREVER))
    assert target.read_bytes() == VERSIONS[1]
    assert report.resumed_bytes == 0


times = st.floats(0.0, 4.0)


@st.composite
def members(draw: st.DrawFn) -> dict[str, object]:
    """Return a replica, without its versions."""
    dies = draw(st.just(FOREVER) | times)
    return {
        "rate": draw(st.sampled_from([4e4, 2e5, 6e5])),
        "connect_seconds": draw(st.sampled_from([0.01, 0.1, 1.0])),
        "dies_at": dies,
        "returns_at": dies + draw(times),
        "in_place": draw(st.booleans()),
        "certain": draw(st.booleans()),
        "offers_checksum": draw(st.booleans()),
    }


@given(
    crowd=st.lists(members(), min_size=1, max_size=4),
    replaced_at=st.lists(times, max_size=2).map(sorted),
    cuts=st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), times), max_size=2),
    strategy=st.sampled_from(NAMES),
)
def test_file_is_one_version_after_random_changes(crowd, replaced_at, cuts, strategy):
    """Return replicas of a file that is replaced everywhere at the same moments, and that otherwise differ."""
    replicas = {f"s{i}": replica(at=replaced_at, **member) for i, member in enumerate(crowd)}
    names = list(replicas)
    parts = [({names[i % len(names)]: replicas[names[i % len(names)]] for i in some}, cut) for some, cut in cuts]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "file.bin")
        with suppress(CoallocError):
            runs(target, *parts, (replicas, FOREVER), strategy=strategy)
        if target.exists():
            assert target.read_bytes() in VERSIONS
        newest = [0.0] * max(1, len(replaced_at))  # an older version that comes back unnoticed looks unchanged
        report = runs(target, ({name: replica(at=newest) for name in replicas}, FOREVER))
        assert report.size == SIZE
        assert target.read_bytes() in VERSIONS
