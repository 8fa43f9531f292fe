"""Files that are known to be whole: which of those that coget wrote are recorded."""

import time
from email.utils import formatdate

import pytest

from coalloc.history.fetched import FetchedFiles, FetchedGroup
from coalloc.model.replicas import Stat
from coalloc.partial_file import PartialFile

CONTENT = b"as fetched"
VERSIONS = {"http://host/x": Stat(len(CONTENT), '"v1"')}


def written(target):
    """Fetch a file to `target`; return its state before it got its name."""
    with PartialFile(target) as partial:
        partial.begin(len(CONTENT))
        partial.write(0, 0, memoryview(CONTENT))
        return partial.publish()


def replaced(target):
    other = target.with_name("other")
    other.write_bytes(CONTENT[::-1])
    other.replace(target)


def rewritten(target):
    target.write_bytes(CONTENT[::-1])


def as_it_was(target):
    target.chmod(0o600)  # changes the ctime, as the rename did


@pytest.mark.parametrize(("change", "whole"), [(as_it_was, True), (replaced, False), (rewritten, False)])
def test_a_file_that_another_program_changes_as_soon_as_it_has_its_name_is_not_recorded(tmp_path, change, whole):
    target, files = tmp_path / "x", FetchedFiles(tmp_path / "h.sqlite")
    state = written(target)
    change(target)
    group = FetchedGroup(files)
    group.add(target, state, VERSIONS)
    group.flush()
    assert files.is_whole(target, VERSIONS) is whole


def gmt(at):
    return formatdate(at, usegmt=True)


def seconds(at):
    return str(int(at))


def stamp(at):
    return time.strftime("%Y%m%d%H%M%S", time.gmtime(at))


def exact_stamp(at):
    return f"{stamp(at)}.250"


@pytest.mark.parametrize("form", [gmt, seconds, stamp, exact_stamp])
@pytest.mark.parametrize(("age", "whole"), [(3600, True), (0, False), (-3600, False)])
def test_a_date_is_no_version_while_the_file_may_still_change_within_it(tmp_path, form, age, whole):
    target, files = tmp_path / "x", FetchedFiles(tmp_path / "h.sqlite")
    versions = {"ftp://host/x": Stat(len(CONTENT), form(time.time() - age))}
    group = FetchedGroup(files)
    group.add(target, written(target), versions)
    group.flush()
    assert files.is_whole(target, versions) is whole


@pytest.mark.parametrize(
    ("version", "whole"),
    [('"1767225600"', True), ("99999999999999", True), ("1700000000000000", True), ('W/"1767225600"', False)],
)
def test_a_version_that_is_no_date_counts_at_once_but_a_weak_tag_never(tmp_path, version, whole):
    target, files = tmp_path / "x", FetchedFiles(tmp_path / "h.sqlite")
    versions = {"ftp://host/x": Stat(len(CONTENT), version)}
    group = FetchedGroup(files)
    group.add(target, written(target), versions)
    group.flush()
    assert files.is_whole(target, versions) is whole
