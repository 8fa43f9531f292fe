"""A writer that is killed at any instant, again and again: its data are correct, and only the last bytes are lost."""

import os
import random
import signal
import sys
import time

import pytest

from coalloc.partial_file import Journal, PartialFile, describe, recall
from tests.support.effort import effort

STEP = 1000
SIZE = 6000 * STEP
GRAIN = SIZE // 4096
CONTENT = random.Random(7).randbytes(SIZE)
KILLS = effort(12, 60)
HEADER = describe(SIZE, ["ftp://a/x", "ftp://b/x", "ftp://c/x"], {}, [])

# Other tests may have left idle threads; the child does not touch their locks.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def resume(target, keeps):
    """Open the data as the next run does: return the partial file, its journal, and the number of resumed bytes."""
    partial = PartialFile(target, keep_checksums=keeps)
    past = recall(partial.journal_path, HEADER)
    kept = partial.begin(SIZE, past.extents)
    count = sum(extent.end - extent.start for extent in kept)
    return partial, Journal.create(partial.journal_path, past.header, kept), count


def write_on(target, keeps, seed, progress):
    """Write missing bytes in steps from three sources, in random order; runs in a child until it is killed."""
    partial, journal, _ = resume(target, keeps)
    steps = [at for start, end in partial.missing() for at in range(start, end, STEP)]
    random.Random(seed).shuffle(steps)
    for i, at in enumerate(steps):
        os.write(progress, b".")
        journal.append(partial.write(i % 3, at, memoryview(CONTENT)[at : at + STEP]))
    os.close(progress)
    time.sleep(60)


def run_and_kill(target, keeps, seed, steps, seconds):
    """Kill a writing child some seconds after this many steps."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_on(target, keeps, seed, theirs)
        except BaseException as error:
            print(error, file=sys.stderr)
        os._exit(1)
    os.close(theirs)
    with open(ours, "rb") as progress:
        progress.read(steps)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"


def bytes_on_disk(target):
    """Return the number of written bytes, by the data alone: whole steps that are not a hole."""
    data = (target.parent / (target.name + ".coget") / "data").read_bytes()
    return sum(STEP for at in range(0, SIZE, STEP) if data[at : at + STEP] == CONTENT[at : at + STEP])


@pytest.mark.long
@pytest.mark.parametrize("keeps", [True, False])
def test_a_kill_costs_at_most_a_grain_and_the_write_it_hit(tmp_path, keeps):
    target = tmp_path / "x"
    moments = random.Random(11)
    reached = []
    for seed in range(KILLS):
        run_and_kill(target, keeps, seed, moments.choice([0, 1, 50, 150, 250]), moments.uniform(0, 0.001))
        written = bytes_on_disk(target) if target.with_name("x.coget").joinpath("data").exists() else 0
        partial, journal, held = resume(target, keeps)
        reached.append(held)
        assert written - held <= GRAIN + STEP
        with open(partial.journal_path.with_name("data"), "r+b") as data:
            for piece in partial.pieces():
                data.seek(piece.start)
                assert data.read(piece.end - piece.start) == CONTENT[piece.start : piece.end]
            for start, end in partial.missing():  # so that the next kill's loss is counted alone
                data.seek(start)
                data.write(bytes(end - start))
        journal.close()
        partial.close()
    assert len(set(reached)) > 5, "the kills hit the writer at work"
    assert reached == sorted(reached)
    partial, journal, _ = resume(target, keeps)
    for start, end in partial.missing():
        journal.append(partial.write(0, start, memoryview(CONTENT)[start:end]))
    journal.close()
    partial.publish()
    assert target.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("lost", ["the file's version", "the data"])
def test_a_kill_before_the_new_journal_leaves_no_old_one_for_new_data(tmp_path, lost):
    """The case without checksums, where nothing tells the holes of new data from the bytes of old ones."""
    target = tmp_path / "x"
    partial, journal, _ = resume(target, False)
    journal.append(partial.write(0, 0, memoryview(CONTENT)[: SIZE // 2]))
    journal.close()
    partial.close()
    if lost == "the data":
        target.with_name("x.coget").joinpath("data").unlink()
    child = os.fork()
    if child == 0:
        partial = PartialFile(target, keep_checksums=False)
        past = recall(partial.journal_path, HEADER)
        partial.begin(SIZE, past.extents if lost == "the data" else ())
        os._exit(0)
    os.waitpid(child, 0)
    partial, journal, count = resume(target, False)
    assert count == 0
    assert partial.missing() == [(0, SIZE)]
    journal.close()
    partial.close()


def test_data_that_a_power_cut_took_is_not_believed(tmp_path):
    """The journal reached the medium and the data did not: its extents hold zeros."""
    target = tmp_path / "x"
    partial, journal, _ = resume(target, True)
    for at in range(0, SIZE, 100 * STEP):
        journal.append(partial.write(at // 100 % 3, at, memoryview(CONTENT)[at : at + 100 * STEP]))
    journal.close()
    with open(partial.journal_path.with_name("data"), "r+b") as data:
        data.seek(1000 * STEP)
        data.write(bytes(50 * STEP))
    partial.close()
    partial, journal, _ = resume(target, True)
    assert partial.missing() == [(1000 * STEP, 1100 * STEP)]
    journal.close()
    partial.close()
