"""Files that are known to be whole: which of those that coget wrote are recorded."""

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
