"""The digest that is computed while a file arrives."""

import hashlib

from coalloc.partial_file.follower import DigestFollower
from coalloc.partial_file.sparse_file import BLOCK
from tests.support.waiting import wait_until

CONTENT = bytes(range(256)) * (3 * BLOCK // 256) + b"rest"


def read(offset, buffer):
    buffer[:] = CONTENT[offset : offset + len(buffer)]


def reached(follower, at):
    """Let the thread work until it has read `at` bytes."""
    wait_until(lambda: follower.at == at)


def test_it_reads_behind_the_front_and_leaves_only_the_rest():
    follower = DigestFollower("sha256", read)
    follower.advance(BLOCK - 1)
    follower.advance(2 * BLOCK + 1)
    reached(follower, 2 * BLOCK)
    follower.advance(len(CONTENT))
    reached(follower, 3 * BLOCK)
    assert follower.finish(len(CONTENT)) == hashlib.sha256(CONTENT).hexdigest()


def test_it_starts_over_only_when_what_it_read_is_revoked():
    follower = DigestFollower("md5", read)
    follower.advance(2 * BLOCK)
    reached(follower, 2 * BLOCK)
    follower.rewind(2 * BLOCK)
    assert follower.at == 2 * BLOCK
    follower.rewind(2 * BLOCK - 1)
    assert follower.at in (0, BLOCK)
    follower.advance(2 * BLOCK - 1)
    reached(follower, BLOCK)
    follower.advance(len(CONTENT))
    assert follower.finish(len(CONTENT)) == hashlib.md5(CONTENT).hexdigest()


def test_it_can_be_rewound_and_finished_again_after_its_end():
    follower = DigestFollower("md5", read)
    follower.advance(len(CONTENT))
    first = follower.finish(len(CONTENT))
    follower.rewind(5)
    follower.advance(len(CONTENT))
    assert follower.finish(len(CONTENT)) == first == hashlib.md5(CONTENT).hexdigest()


def test_closing_ends_the_thread():
    follower = DigestFollower("md5", read)
    follower.close()
    follower.close()
    follower.advance(len(CONTENT))
    assert follower.at == 0
