"""Agreement of replicas: which servers report the same file."""

import pytest

from coalloc.download.agreement import Agreement
from coalloc.errors import ReplicaChanged, VerificationError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.replicas import NamedBy, Replica, ReplicaSet, Stat

A, B = "ftp://a/x", "http://b/x"
MD5, OTHER = Checksum("md5", "0" * 32), Checksum("md5", "1" * 32)


@pytest.fixture
def agreement():
    return Agreement(ReplicaSet("x", (Replica(A), Replica(B))))


def test_first_answer_defines_size_and_digests(agreement):
    agreement.check(1, Stat(7, "tag", (MD5,)))
    agreement.check(0, Stat(7, "other tag"))
    assert (agreement.size, agreement.digests, agreement.stated_by(MD5)) == (7, [MD5], {1})


@pytest.mark.parametrize("stat", [Stat(8), Stat(7, checksums=(OTHER,))])
def test_two_servers_that_contradict_each_other_stop_everything(agreement, stat):
    agreement.check(1, Stat(7, checksums=(MD5,)))
    with pytest.raises(VerificationError, match=f"{A}.*{B}"):
        agreement.check(0, stat)


@pytest.mark.parametrize("stat", [Stat(8), Stat(7, checksums=(OTHER,))])
def test_replica_that_contradicts_the_metalink_is_refused(stat):
    agreement = Agreement(ReplicaSet("x", (Replica(A), Replica(B)), size=7, checksums=(MD5,)))
    with pytest.raises(ReplicaChanged, match=A):
        agreement.check(0, stat)
    agreement.check(1, Stat(7, checksums=(MD5,)))


@pytest.mark.parametrize("size", [0, 4, 7])
def test_a_replica_whose_size_does_not_fit_the_hashes_of_pieces_is_refused(size):
    agreement = Agreement(ReplicaSet("x", (Replica(A), Replica(B)), pieces=PieceHashes("md5", 2, ("0" * 32,) * 3)))
    with pytest.raises(ReplicaChanged, match=f"{A} has {size} bytes, but the Metalink has 3 hashes of 2 each"):
        agreement.check(0, Stat(size))


@pytest.mark.parametrize("stat", [Stat(6, "old"), Stat(7, "new")])
def test_a_server_whose_file_changes_meanwhile_is_left_out(agreement, stat):
    agreement.check(0, Stat(7, "old"))
    agreement.check(0, Stat(7, "old"))
    agreement.check(0, Stat(7))
    with pytest.raises(ReplicaChanged, match=f"{A} was changed"):
        agreement.check(0, stat)
    agreement.check(1, Stat(7))


TAGGED = Stat(7, '"1"')
STRONG = Checksum("sha256", "2" * 64)
LINKED, LINKED_SAFELY = NamedBy("http://a/x", False, False), NamedBy("https://a/x", False, True)
REDIRECTED, REDIRECTED_SAFELY = NamedBy("http://a/x", True, False), NamedBy("https://a/x", True, True)


@pytest.mark.parametrize(
    ("named_by", "url", "first", "second", "usable"),
    [
        (LINKED, "http://c/x", TAGGED, Stat(7, '"1"'), True),
        (LINKED, "http://c/x", TAGGED, Stat(7, '"2"'), False),
        (LINKED, "http://c/x", Stat(7, "Mon"), Stat(7, "Mon"), False),
        (LINKED, "http://c/x", Stat(7), Stat(7), False),
        (LINKED, "http://c/x", Stat(7, checksums=(MD5,)), Stat(7), True),
        (LINKED, "ftp://c/x", Stat(7, checksums=(MD5,)), Stat(7), True),
        (LINKED, "http://c/x", Stat(7, checksums=(MD5,)), Stat(7, checksums=(OTHER,)), False),
        (LINKED, "http://c/x", Stat(7, checksums=(MD5,)), Stat(8), False),
        (LINKED_SAFELY, "http://c/x", Stat(7, checksums=(MD5,)), Stat(7), False),
        (LINKED_SAFELY, "http://c/x", Stat(7, checksums=(STRONG,)), Stat(7), True),
        (LINKED_SAFELY, "https://c/x", Stat(7, checksums=(MD5,)), Stat(7), True),
        (REDIRECTED, "http://c/x", Stat(7), Stat(7, '"2"'), True),
        (REDIRECTED, "ftp://c/x", Stat(7), Stat(7), False),
        (REDIRECTED, "http://c/x", Stat(7), Stat(8), False),
        (REDIRECTED_SAFELY, "http://c/x", TAGGED, TAGGED, False),
        (REDIRECTED_SAFELY, "https://c/x", Stat(7), Stat(7), True),
    ],
)
def test_a_replica_that_another_server_named_is_used_only_if_it_can_be_checked(named_by, url, first, second, usable):
    agreement = Agreement(ReplicaSet("x", (Replica(A), Replica(url, named_by=named_by))))
    agreement.check(0, first)
    if usable:
        agreement.check(1, second)
    else:
        with pytest.raises(ReplicaChanged, match="c/x"):
            agreement.check(1, second)
    agreement.check(0, first)
    assert agreement.digests == list(first.checksums)


def test_a_replica_that_another_server_named_has_no_say_about_checksums():
    agreement = Agreement(ReplicaSet("x", (Replica(A), Replica("http://c/x", named_by=REDIRECTED))))
    agreement.check(0, Stat(7))
    agreement.check(1, Stat(7, checksums=(MD5,)))
    assert agreement.digests == []


def test_replicas_that_a_dead_server_named_define_the_file():
    linked = (Replica(url, named_by=REDIRECTED) for url in ("http://c/x", "http://d/x"))
    agreement = Agreement(ReplicaSet("x", (Replica(A), *linked)))
    agreement.check(1, Stat(7, checksums=(MD5,)))
    assert (agreement.size, agreement.digests) == (7, [MD5])
    with pytest.raises(ReplicaChanged, match="d/x"):
        agreement.check(2, Stat(7, checksums=(OTHER,)))
