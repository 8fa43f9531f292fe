"""Targets: paths of files, which never leave the directory."""

import os
from pathlib import Path

import pytest

from coalloc.errors import SinkError, UsageError
from coalloc.resolve import target


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_one_file_without_an_output_goes_to_the_current_directory(here):
    assert target("x", None, many=False).absolute() == here / "x"


def test_one_file_goes_into_a_directory_or_is_the_output(here, tmp_path):
    assert target("x", tmp_path, many=False) == tmp_path / "x"
    assert target("x", here / "y", many=False) == here / "y"
    assert target("a/x", here / "y", many=False) == here / "y"
    assert list(here.iterdir()) == []


def test_many_files_need_a_directory_which_is_created(here):
    assert target("a/b/x", here / "new", many=True) == here / "new/a/b/x"
    assert (here / "new/a/b").is_dir()
    (here / "file").touch()
    with pytest.raises(UsageError, match="file is a file"):
        target("x", here / "file", many=True)


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", ""])
def test_unsafe_names_are_refused(name, here):
    with pytest.raises(UsageError, match="file name"):
        target(name, here, many=True)
    assert target(name, here / "chosen", many=False) == here / "chosen"


@pytest.mark.parametrize("link", ["..", "../elsewhere", "/", "inner/../.."])
def test_a_symbolic_link_does_not_lead_out(link, here, tmp_path):
    (here / "a").symlink_to(link)
    with pytest.raises(UsageError, match="symbolic link"):
        target("a/b/x", here, many=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]


def test_a_symbolic_link_inside_the_directory_is_followed(here):
    (here / "real").mkdir()
    (here / "a").symlink_to("real")
    assert target("a/x", here, many=False) == here / "a/x"


def test_the_directory_itself_may_be_a_symbolic_link(here, tmp_path):
    (tmp_path / "link").symlink_to(here)
    assert target("x", tmp_path / "link", many=True) == tmp_path / "link/x"


def test_a_folder_that_cannot_be_made_is_an_error_of_the_disk(here):
    (here / "a").touch()
    with pytest.raises(SinkError, match="cannot create a/x"):
        target("a/x", None, many=False)
    with pytest.raises(SinkError, match="name too long"):
        target("n" * 300 + "/x", Path("new"), many=True)


@pytest.mark.parametrize("at", [0, 1])
def test_a_folder_that_becomes_a_link_while_folders_are_made_is_not_followed(here, tmp_path, monkeypatch, at):
    (tmp_path / "elsewhere").mkdir()
    (here / "a/b").mkdir(parents=True)
    made, make = [], os.mkdir

    def exchange(path, *args, dir_fd=None, **more):
        """Swap entries as another user with write access can."""
        if len(made) == at:
            folder = here / ("a", "a/b")[at]
            folder.rename(here / "away")
            folder.symlink_to(tmp_path / "elsewhere")
        made.append(path)
        make(path, *args, dir_fd=dir_fd, **more)

    monkeypatch.setattr(os, "mkdir", exchange)
    with pytest.raises(SinkError):
        target("a/b/c/d/x", here, many=True)
    assert made
    assert list((tmp_path / "elsewhere").iterdir()) == []
