"""Snakemake's own conformance suite for its storage plugin, and real workflows over real servers.

They need the plugin and Snakemake: without them, the tests are skipped.
"""

from contextlib import ExitStack

import pytest

from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.workflows import query, workflow

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]  # warnings of Snakemake are its own

why = "pip install snakemake packaging/snakemake brings it"
plugin = pytest.importorskip("snakemake_storage_plugin_coget", reason=why)
conformance = pytest.importorskip("snakemake_interface_storage_plugins.tests", reason=why)


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


class TestConformance(conformance.TestStorageBase):  # type: ignore[name-defined]
    """Snakemake's suite, on a file at two servers."""

    __test__ = True
    retrieve_only = True

    @pytest.fixture(autouse=True)
    def served(self, web):
        for server in web:
            random_file(server.root / "x", 100_000)
        self.web = web

    def get_storage_provider_cls(self):
        return plugin.StorageProvider

    def get_storage_provider_settings(self):
        return plugin.StorageProviderSettings()

    def get_query(self, tmp_path):
        return query(self.web, "x")

    def get_query_not_existing(self, tmp_path):
        return query(self.web, "missing")


def test_a_workflow_runs_once_whatever_the_order_of_its_replicas(web, tmp_path):
    for server in web:
        random_file(server.root / "x", 1_000_000)
    status, out = workflow(tmp_path / "work", query(web, "x"))
    assert status == 0, out
    status, out = workflow(tmp_path / "work", query(web[::-1], "x"))
    assert status == 0, out
    assert (tmp_path / "work/ran").read_text() == "ran\n"
    assert "Nothing to be done" in out


def test_replicas_of_different_sizes_stop_the_job_and_no_secret_is_shown(web, tmp_path):
    for seed, server in enumerate(web):
        random_file(server.root / "x", 1_000_000 + seed, seed)
    status, out = workflow(tmp_path / "work", query(web, "x").replace("|", "?key=abcdefgh|") + "?key=abcdefgh")
    assert status != 0
    assert "different files" in out
    assert not (tmp_path / "work/count.txt").exists()
    assert "abcdefgh" not in out
