"""Agreement of replicas: which servers report the same file."""

import pytest

from coalloc.download.agreement import Agreement
from coalloc.errors import ReplicaChanged, VerificationError
from coalloc.model import Checksum, Replica, ReplicaSet, Stat

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


@pytest.mark.parametrize("stat", [Stat(6, "old"), Stat(7, "new")])
def test_a_server_whose_file_changes_meanwhile_is_left_out(agreement, stat):
    agreement.check(0, Stat(7, "old"))
    agreement.check(0, Stat(7, "old"))
    agreement.check(0, Stat(7))
    with pytest.raises(ReplicaChanged, match=f"{A} was changed"):
        agreement.check(0, stat)
    agreement.check(1, Stat(7))
