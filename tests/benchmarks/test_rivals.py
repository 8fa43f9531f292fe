"""Command lines of rivals contain all replicas or the best one, and the path of the target."""

from pathlib import Path

import pytest

from coalloc.resolve import metalink
from tests.benchmarks.rivals import PEERS, RIVALS, Errand
from tests.benchmarks.scenarios import SCENARIOS

ONE_SERVER = {"coget-best", "globus-url-copy", "globus-url-copy-p8", "lftp"}
URLS = ["http://a:80/data.bin", "http://b:80/data.bin"]


@pytest.mark.parametrize("name", RIVALS)
def test_rival_command_contains_all_replicas_or_the_best_one(name: str, tmp_path: Path):
    errand = Errand(URLS, URLS[1], 1000, tmp_path / "target.bin")
    words = " ".join(RIVALS[name].command(errand))
    if errand.metalink.exists():
        (named,) = metalink.read(errand.metalink.read_bytes(), "here")
        assert (named.name, named.size) == ("target.bin", 1000)
        words += "".join(replica.url for replica in named.replicas)
    assert [url in words for url in URLS] == [name not in ONE_SERVER, True]
    assert "target.bin" in words


def test_scenarios_ask_for_rivals_that_exist():
    assert {name for scenario in SCENARIOS.values() for name in scenario.extra} | set(PEERS) == set(RIVALS)
