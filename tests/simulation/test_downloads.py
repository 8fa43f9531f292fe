"""Whole downloads in virtual time, to a real disk: replicas that lie, corrupt, and die; resuming; blame."""

import asyncio
import tempfile
import time
from pathlib import Path
from zlib import adler32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coalloc.download.to_disk import Download, DownloadSettings
from coalloc.errors import CoallocError, NoSuchFile, NothingToFetchFrom, TransferFailed, Unreachable, VerificationError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.forecasts import Estimate
from coalloc.model.promises import Deadline
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import Results, TransferReport
from coalloc.schedule.policies import NAMES, make
from coalloc.testing.simulated import Behaviour, SimulatedSource
from coalloc.testing.virtual_clock import run
from coalloc.util.checksums import hasher
from coalloc.verify import comparison
from tests.support.effort import effort

SIZE = 3_000_000
DATA = np.random.default_rng(7).bytes(SIZE)


def digest(algorithm: str) -> Checksum:
    summed = hasher(algorithm)
    summed.update(memoryview(DATA))
    return Checksum(algorithm, summed.hexdigest())


def honest(rate: float = 1e6, **more) -> Behaviour:
    return Behaviour(rates=((0.0, rate),), **more)


def corrupt(*offsets: int, rate: float = 1e6, **more) -> Behaviour:
    return honest(rate, corrupts=frozenset(offsets), **more)


class Case:
    """A target and the sources that a test downloads from."""

    def __init__(self, target: Path, *behaviours: Behaviour, data: bytes = DATA) -> None:
        self.target = target
        self.sources = [SimulatedSource(f"s{i}", data, b) for i, b in enumerate(behaviours)]
        self.results: Results[TransferReport] = Results()

    def download(self, strategy="adaptive", *, checksum=None, keep=True, seconds=None, **known):
        return run(self._download(strategy, checksum, keep, seconds, known))

    async def _download(self, strategy, checksum, keep, seconds, known):
        checksums = (checksum,) if checksum else ()
        file = ReplicaSet(self.target.name, tuple(Replica(s.url) for s in self.sources), checksums=checksums, **known)
        wishes = DownloadSettings(make(strategy), keep_checksums=keep)
        download = Download(file, self.sources, [Estimate()] * len(self.sources), self.target, wishes, lambda _: None)
        with self.results.of(download.report):
            async with asyncio.timeout(seconds):
                return await download.run()

    def unfinished(self) -> TransferReport:
        """The report of a download that failed."""
        assert self.results.unfinished is not None
        return self.results.unfinished

    @property
    def folder(self) -> Path:
        return self.target.with_name(self.target.name + ".coget")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "file.bin"


def outcomes(report) -> list[str]:
    return [source.outcome for source in report.sources]


@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("size", [0, 1, 1000, SIZE])
def test_every_scheme_delivers_the_file(target, strategy, size):
    case = Case(target, honest(), honest(2e6), data=DATA[:size])
    report = case.download(strategy)
    assert target.read_bytes() == DATA[:size]
    assert report.size == size
    assert not case.folder.exists()
    assert report.checksum == Checksum("adler32", f"{adler32(DATA[:size]):08x}")


def test_download_without_server_checksums_is_not_verified(target):
    assert Case(target, honest(), honest()).download().basis == "none"


def test_no_replica_is_its_own_only_witness(target):
    """A second source confirms the first one's bytes; no other source delivers those of the first."""
    alone = Case(target, honest(offers_checksum=True), honest()).download()
    assert (alone.basis, alone.verified, alone.compared) == ("own word", False, True)
    target.unlink()
    both = Case(target, honest(offers_checksum=True), honest(offers_checksum=True)).download()
    assert (both.basis, both.verified) == ("agree", True)


def test_a_corrupt_replica_that_vouches_for_itself_verifies_nothing(target):
    good, bad = honest(), corrupt(*range(0, SIZE, 7), offers_checksum=True)
    with pytest.raises(VerificationError, match="no third replica can decide"):
        Case(target, good, bad).download()
    bad = corrupt(SIZE - 1, offers_checksum=True)  # in the bytes that it delivers itself
    assert not Case(target, good, bad).download("brute").verified


@pytest.mark.parametrize("algorithm", ["adler32", "crc32", "md5", "sha256"])
@pytest.mark.parametrize("speaks", [True, False], ids=["cksm", "silent"])
def test_a_bad_replica_is_named_and_only_its_pieces_are_fetched_again(target, algorithm, speaks):
    more = {"offers_checksum": speaks}
    case = Case(target, honest(**more), corrupt(*range(0, SIZE, 50_000), **more), honest(**more))
    report = case.download(checksum=digest(algorithm))
    assert target.read_bytes() == DATA
    assert report.verified
    assert outcomes(report)[1] == "corrupt"
    assert "corrupt" not in (outcomes(report)[0], outcomes(report)[2])
    # If the servers cannot decide, one replica after the other is suspected, the one with the fewest bytes first.
    assert sum(source.sent for source in case.sources) < (2 if speaks and algorithm == "adler32" else 3) * SIZE


@pytest.mark.parametrize("rates", [(2e5, 1e6, 1e6), (1e6, 1e6, 2e5), (2e5, 1e6, 1e5), (1e6, 2e5, 1e6)])
def test_source_suspected_without_reason_is_used_again(target, rates):
    first, second, third = rates
    case = Case(target, honest(first), corrupt(*range(0, SIZE, 20_000), rate=second), honest(third))
    report = case.download(checksum=digest("md5"))
    assert target.read_bytes() == DATA
    assert outcomes(report) == ["ok", "corrupt", "ok"]
    assert report.sources[0].error is None


@settings(max_examples=effort(10, 40))
@given(
    strategy=st.sampled_from(NAMES),
    rates=st.lists(st.sampled_from([2e5, 1e6, 3e6]), min_size=2, max_size=5),
    place=st.integers(0, 4),
    speaks=st.booleans(),
    dies_at=st.sampled_from([0.5, float("inf")]),
)
def test_one_bad_replica_never_spoils_the_file(strategy, rates, place, speaks, dies_at):
    more = {"offers_checksum": speaks}
    crowd = [honest(rate, **more) for rate in rates]
    crowd[0] = honest(rates[0], dies_at=dies_at, returns_at=3.0, **more)
    crowd.insert(place, corrupt(*range(0, SIZE, 20_000), **more))
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "file.bin"
        report = Case(target, *crowd).download(strategy, checksum=digest("md5"))
        assert target.read_bytes() == DATA
    assert report.verified
    wrong = [source.url for source in report.sources if source.outcome == "corrupt"]
    assert set(wrong) <= {f"sim://s{min(place, len(rates))}/file"}


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_the_known_checksum_counts_more_than_the_servers_words(target, algorithm):
    wrong = [honest(digests=(Checksum("sha256", digit * 64),)) for digit in "12"]
    case = Case(target, *wrong, honest())
    report = case.download(checksum=digest(algorithm))
    assert (report.checksum, report.verified) == (digest(algorithm), True)
    assert outcomes(report) == (["ok"] * 3 if algorithm == "md5" else ["failed", "failed", "ok"])


def test_verification_does_not_count_as_idle_time(target):
    report = Case(target, honest(setup_seconds=10, offers_checksum=True)).download()
    assert report.compared
    assert report.sources[0].idle_seconds < 1 < 6 < report.seconds - report.sources[0].seconds


def test_replicas_are_compared_by_default(target):
    case = Case(target, *(honest(offers_checksum=True),) * 2, corrupt(*range(0, SIZE, 50_000), offers_checksum=True))
    report = case.download()
    assert target.read_bytes() == DATA
    assert report.verified
    assert outcomes(report) == ["ok", "ok", "corrupt"]


def test_two_replicas_that_differ_give_no_file(target):
    case = Case(target, honest(offers_checksum=True), corrupt(*range(0, SIZE, 50_000), offers_checksum=True))
    with pytest.raises(VerificationError, match="differ in bytes"):
        case.download()
    assert not target.exists()


def test_a_wrong_expected_checksum_gives_no_file(target):
    case = Case(target, honest(offers_checksum=True), honest(offers_checksum=True))
    with pytest.raises(VerificationError, match="not the expected 00000001"):
        case.download(checksum=Checksum("adler32", "00000001"))
    assert not target.exists()


def test_download_from_bad_sources_only_leaves_no_file(target):
    with pytest.raises(VerificationError, match="whichever source is left out"):
        Case(target, corrupt(5), corrupt(SIZE - 5)).download(checksum=digest("md5"))
    assert not target.exists()
    with pytest.raises(VerificationError, match="no other source is left"):
        Case(target, corrupt(5)).download(checksum=digest("md5"))


def test_metalink_pieces_name_the_bad_replica(target):
    length = 100_000
    values = []
    for start in range(0, SIZE, length):
        summed = hasher("sha256")
        summed.update(memoryview(DATA)[start : start + length])
        values.append(summed.hexdigest())
    case = Case(target, honest(), corrupt(*range(0, SIZE, 50_000)), honest())
    report = case.download(size=SIZE, pieces=PieceHashes("sha256", length, tuple(values)))
    assert target.read_bytes() == DATA
    assert report.verified
    assert outcomes(report)[1] == "corrupt"


def test_sizes_that_differ_end_it_before_bytes_are_mixed(target):
    with pytest.raises(VerificationError, match=r"s1/file has 7 bytes, but sim://s0/file says 3000000"):
        Case(target, honest(), honest(connect_seconds=0.06, claims_size=7)).download()
    assert not target.exists()


LATE = 0.4
"""Seconds of waiting for a replica's answer when all of a small file has come from another."""


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_different_sizes_are_found_in_any_order_of_answers(target, late, size):
    connect = [LATE if late == i else 0.05 for i in range(2)]
    case = Case(
        target, honest(connect_seconds=connect[0]), honest(connect_seconds=connect[1], claims_size=7), data=DATA[:size]
    )
    with pytest.raises(VerificationError, match=f"s{late}/file has .* but sim://s{1 - late}/file says"):
        case.download()
    assert not target.exists()


def test_a_replica_that_answers_after_the_last_byte_is_compared(target):
    others = honest(offers_checksum=True), corrupt(500, offers_checksum=True, connect_seconds=LATE)
    with pytest.raises(VerificationError, match="differ in bytes 0 to 999"):
        Case(target, *others, data=DATA[:1000]).download()
    assert not target.exists()


def test_every_byte_is_compared_with_another_replica_even_if_it_was_late(target, monkeypatch):
    monkeypatch.setattr(comparison, "LEAST", 100_000)
    late = corrupt(500, offers_checksum=True, connect_seconds=LATE)
    with pytest.raises(VerificationError, match="differ in bytes 0 to"):
        Case(target, honest(1e8, offers_checksum=True), late).download()


def test_a_replica_that_is_very_late_does_not_hold_the_file_up(target):
    report = Case(target, honest(), honest(connect_seconds=100), data=DATA[:1000]).download()
    assert report.seconds < 1
    report = Case(target, honest(connect_seconds=5), honest(connect_seconds=100), data=DATA[:1000]).download()
    assert report.seconds < 11


@pytest.mark.parametrize("behaviour", [honest(connect_seconds=LATE), honest(connect_seconds=LATE, missing=True)])
def test_late_source_is_waited_for_only_until_it_answers(target, behaviour):
    assert Case(target, honest(), behaviour, data=DATA[:1000]).download().seconds < LATE + 0.05


def test_source_without_new_information_is_not_waited_for(target):
    late, known = honest(connect_seconds=LATE), Checksum("md5", hasher("md5").hexdigest())
    assert Case(target, honest(), late, data=b"").download(checksum=known).seconds < LATE
    back = honest(dies_at=0.2, returns_at=1.0, connect_seconds=0.1)
    assert Case(target, honest(3e6), back).download().seconds < 1.15


def test_a_known_size_leaves_the_liar_out(target):
    case = Case(target, honest(claims_size=7, connect_seconds=0.01), honest())
    report = case.download(size=SIZE)
    assert target.read_bytes() == DATA
    assert outcomes(report) == ["failed", "ok"]
    assert "has 7 bytes" in report.sources[0].error


def test_errors_at_the_start_are_reported_unchanged(target):
    with pytest.raises(NoSuchFile):
        Case(target, honest(missing=True)).download()
    case = Case(target, honest(missing=True), honest(dies_at=0.0))
    with pytest.raises(NothingToFetchFrom, match=r"s0/file: no such file\n.*s1/file refused"):
        case.download()
    assert outcomes(case.unfinished()) == ["failed", "failed"]
    assert "no such file" in case.unfinished().sources[0].error
    with pytest.raises(Unreachable):
        Case(target, honest(dies_at=0.0)).download()
    assert not list(target.parent.iterdir())


def test_a_target_that_is_right_already_is_not_fetched(target):
    target.write_bytes(DATA)
    case = Case(target, honest())
    report = case.download(checksum=digest("md5"))
    assert (report.resumed_bytes, report.verified, case.sources[0].sent) == (SIZE, True, 0)
    assert not case.folder.exists()
    target.write_bytes(DATA[:-1] + b"?")
    assert Case(target, honest()).download(checksum=digest("md5")).resumed_bytes == 0
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("says", [{"offers_checksum": True}, {"digests": (digest("sha256"),)}], ids=["cksm", "digest"])
def test_a_target_that_a_server_confirms_is_not_fetched(target, says):
    target.write_bytes(DATA)
    case = Case(target, honest(**says), honest(connect_seconds=9))
    report = case.download()
    assert (report.resumed_bytes, report.basis, case.sources[0].sent) == (SIZE, "own word", 0)
    assert "existed already" in report.notice
    assert report.seconds < 1
    target.write_bytes(DATA[:-1] + b"?")
    report = Case(target, honest(**says)).download()
    assert (report.resumed_bytes, report.basis, report.notice) == (0, "own word", None)
    assert target.read_bytes() == DATA


@pytest.mark.parametrize("left", [DATA, DATA[1:], None])
def test_unconfirmed_target_is_fetched_again_with_a_notice(target, left):
    if left is not None:
        target.write_bytes(left)
    case = Case(target, honest())
    report = case.download()
    assert case.sources[0].sent == SIZE
    assert ("with the same size" in (report.notice or "")) == (left == DATA)


def test_fetched_bytes_are_not_fetched_again(target):
    case = Case(target, honest(dies_at=1.0), honest(dies_at=1.0))
    with pytest.raises(TransferFailed):
        case.download()
    first = sum(source.bytes for source in case.unfinished().sources)
    assert 0 < first < SIZE
    report = Case(target, honest(), honest()).download()
    assert target.read_bytes() == DATA
    assert report.resumed_bytes == first
    assert sum(source.bytes for source in report.sources) == SIZE - first


@pytest.mark.parametrize("keep", [True, False])
def test_cancelled_at_any_time_it_goes_on_from_there(target, keep):
    moved = 0
    for attempt in range(20):
        case = Case(target, honest(), honest(5e5))
        try:
            report = case.download(keep=keep, seconds=0.2 + 0.02 * attempt)
        except TimeoutError:
            assert not target.exists()
            moved += sum(source.sent for source in case.sources)
        else:
            moved += sum(source.sent for source in case.sources)
            break
    assert target.read_bytes() == DATA
    assert report.resumed_bytes > 0
    assert moved <= 1.02 * SIZE


def test_bytes_of_an_earlier_run_that_were_wrong_do_not_count_as_resumed(target):
    with pytest.raises(TransferFailed):
        Case(target, honest(dies_at=1.0), corrupt(*range(0, SIZE, 50_000), dies_at=1.0)).download()
    report = Case(target, honest(offers_checksum=True)).download(checksum=digest("adler32"))
    assert target.read_bytes() == DATA
    assert 0 < report.resumed_bytes == SIZE - report.sources[0].bytes


def test_a_source_that_was_lost_near_the_end_did_well_until_then(target):
    crowd = honest(offers_checksum=True), honest(dies_at=1.0), honest(dies_at=0.06)
    report = Case(target, *crowd).download()  # the lost bytes are confirmed by the remaining source
    assert outcomes(report) == ["ok", "ok", "failed"]
    assert "refused the connection" in report.sources[1].error


def test_bytes_of_an_earlier_run_are_compared(target, monkeypatch):
    monkeypatch.setattr(comparison, "LEAST", 100_000)
    with pytest.raises(TransferFailed):
        Case(target, honest(dies_at=1.0), honest(dies_at=1.0)).download()
    report = Case(target, honest(offers_checksum=True), honest(offers_checksum=True)).download()
    assert report.resumed_bytes
    assert report.verified


def test_damage_between_runs_is_noticed(target):
    with pytest.raises(TransferFailed):
        Case(target, honest(dies_at=1.0)).download()
    data = target.with_name("file.bin.coget") / "data"
    with data.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    Case(target, honest()).download()
    assert target.read_bytes() == DATA


def test_after_an_error_the_report_has_what_was_known(target):
    case = Case(target, honest(dies_at=1.0))
    with pytest.raises(CoallocError):
        case.download()
    assert case.unfinished().size == SIZE
    assert case.unfinished().sources[0].outcome == "failed"


def test_a_broker_is_asked_only_about_the_sources_of_this_run(target):
    with pytest.raises(TimeoutError):
        Case(target, honest(), honest()).download(seconds=1.0)
    case = Case(target, honest())
    seen = []

    async def resume() -> TransferReport:
        async def admit(left: int) -> None:
            seen.append([source.url for source in download.snapshot().sources])

        file = ReplicaSet(target.name, (Replica(case.sources[0].url),))
        known = DownloadSettings(make("adaptive"), deadline=Deadline(time.time() + 1e5), admit=admit)
        download = Download(file, case.sources, [Estimate()], target, known)
        return await download.run()

    report = run(resume())
    assert report.resumed_bytes > 0
    assert seen == [[case.sources[0].url]]
