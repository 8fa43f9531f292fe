"""fsspec's own tests of downloads, with the files of a real GridFTP server."""

import os
import shutil

import pytest
from fsspec.implementations.local import LocalFileSystem
from fsspec.tests.abstract import AbstractFixtures, AbstractGetTests

from coalloc.plugins.fsspec_system import CogetFileSystem
from tests.support.gridftp import GridFTPServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with GridFTPServer(tmp_path_factory.mktemp("served")) as server:
        yield server


class PreparedFileSystem(CogetFileSystem):
    """The file system, and a way to make files at the server, which one of the tests needs."""

    def mkdir(self, path, create_parents=True, **kwargs):
        (self.served / path).mkdir(parents=create_parents)

    def touch(self, path, truncate=True, **kwargs):
        (self.served / path).touch()


class GridFTPFixtures(AbstractFixtures):
    """fsspec's files, made in the directory of the server, as the file system is read-only."""

    @pytest.fixture
    def fs(self, server):
        PreparedFileSystem.served = server.root
        yield PreparedFileSystem(replicas=[server.url("")])
        shutil.rmtree(server.root / "top")

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(part for part in parts if part)

    @pytest.fixture
    def fs_path(self):
        return "top"

    def made(self, server, make):
        make(LocalFileSystem(auto_mkdir=True), os.path.join, str(server.root / "top"))
        return "top/source"

    @pytest.fixture
    def fs_bulk_operations_scenario_0(self, server):
        return self.made(server, self._bulk_operations_scenario_0)

    @pytest.fixture
    def fs_glob_edge_cases_files(self, server):
        return self.made(server, self._glob_edge_cases_files)

    @pytest.fixture
    def fs_dir_and_file_with_same_name_prefix(self, server):
        return self.made(server, self._dir_and_file_with_same_name_prefix)

    @pytest.fixture
    def fs_10_files_with_hashed_names(self, server):
        return self.made(server, self._10_files_with_hashed_names)


@pytest.mark.sampled(12)
class TestGet(GridFTPFixtures, AbstractGetTests):
    """Downloads of files, directories, globs and lists."""
