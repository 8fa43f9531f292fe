"""The names of files in a workflow; this needs no Snakemake."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "packaging/snakemake/snakemake_storage_plugin_coget/queries.py"
spec = spec_from_file_location("queries", HERE)
queries = module_from_spec(spec)
spec.loader.exec_module(queries)


def test_the_order_of_replicas_and_repetition_make_no_difference():
    one = queries.canonical("coget://https://b/x|ftp://a/x|https://b/x")
    assert one == queries.canonical("coget://ftp://a/x|https://b/x") == "coget://ftp://a/x|https://b/x"
    assert queries.canonical(one) == one
    assert queries.canonical("https://b/x") == "coget://https://b/x"


@pytest.mark.parametrize(
    "good", ["coget://run1:a/x.nc", "https://a/x", "coget://ftp://a/x|https://b/x", "coget://r:{n}"]
)
def test_datasets_and_urls_are_valid(good):
    assert queries.is_valid(good)


@pytest.mark.parametrize(
    "bad", ["", "x", "run1:x", "coget://", "coget://x", "coget://r:x|r:y", "coget://https://a/x|y"]
)
def test_other_names_are_not(bad):
    assert not queries.is_valid(bad)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("https://a/data/x.nc?key=secret#part", "x.nc"),
        ("https://a/data/..", "_.."),
        ("https://a/data/%2e%2e%2Fx", "_2e_2e_2Fx"),
        ("run1:x.nc", "x.nc"),
        ("https://a/a b\n", "a_b_"),
        ("https://a/" + "y" * 300, "y" * 200),
    ],
)
def test_the_file_keeps_its_own_name_without_keys_and_stays_in_its_directory(address, name):
    folder, _, found = queries.file_name(f"coget://{address}").partition("/")
    assert (len(folder), found) == (16, name)


def test_files_of_the_same_name_have_different_directories_and_wildcards_stay():
    assert queries.file_name("coget://https://a/x") != queries.file_name("coget://https://b/x")
    assert queries.has_wildcards("coget://https://a/{run}/x")
    assert "{run}/x" in queries.file_name("coget://https://a/{run}/x")
