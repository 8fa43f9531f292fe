"""Deadlines of downloads from real servers: kept with few sources, refused beforehand, or missed and reported."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.support.coget import coget, coget_process
from tests.support.nginx import Nginx
from tests.support.waiting import wait_until

BIG = np.random.default_rng(23).bytes(12 << 20)
SMALL = BIG[: 3 << 20]
RATE = "limit_rate 3m;"


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Nginx]]:
    root = tmp_path / "export"
    root.mkdir()
    (root / "big").write_bytes(BIG)
    (root / "small").write_bytes(SMALL)
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(root, tmp_path / f"run{i}", more=RATE)) for i in range(2)]


@pytest.fixture
def home(tmp_path: Path, servers: list[Nginx]) -> Path:
    """A home whose history knows both servers."""
    home = tmp_path / "home"
    home.mkdir()
    for server in servers:
        for number in range(3):
            words = ["get", "--quiet", "--streams", "1", "-o", f"small{number}", server.url("small")]
            assert coget(words, home).returncode == 0
            (home / f"small{number}").unlink()
    return home


def words(servers: list[Nginx], *more: str) -> list[str]:
    return ["get", "--json", "--streams", "1", "-o", "here", *more, *(server.url("big") for server in servers)]


def test_a_transfer_with_time_spares_the_second_source(servers, home):
    done = coget(words(servers, "--by", "+10 min"), home)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (home / "here").read_bytes() == BIG
    assert sorted(source["outcome"] for source in report["sources"]) == ["ok", "unused"]
    deadline = report["deadline"]
    assert deadline["kept"]
    assert deadline["spared_sources"] == 1
    assert deadline["probability"] > 0.95
    assert deadline["ended"] < deadline["by"]


def test_the_report_shows_whether_the_deadline_was_kept(servers, home):
    urls = [server.url("big") for server in servers]
    done = coget(["get", "--streams", "1", "--by", "+10 min", *urls], home)
    assert done.returncode == 0
    assert ": kept, " in done.stderr
    assert "; 1 source spared" in done.stderr


def test_a_deadline_that_cannot_be_kept_is_refused_and_leaves_nothing(servers, home):
    before = sorted(home.iterdir())
    done = coget(words(servers, "--by", "+0.5 s"), home)
    assert done.returncode == 9
    report = json.loads(done.stdout)
    assert report["error"]["code"] == "deadline"
    assert "use --by" in report["error"]["remedy"]
    assert sorted(home.iterdir()) == before
    later = report["error"]["remedy"].split("--by ")[1].split(",")[0]
    again = coget(words(servers, "--by", later), home)
    kept = json.loads(again.stdout)["deadline"]["kept"]  # a refusal has no `deadline`
    assert again.returncode == (0 if kept else 9), again.stderr
    assert (home / "here").read_bytes() == BIG


def test_the_plan_shows_the_probability_and_moves_nothing(servers, home):
    urls = [server.url("big") for server in servers]
    done = coget(["plan", "--json", "--by", "+10 min", "--sure", "99", *urls], home)
    assert done.returncode == 0, done.stderr
    deadline = json.loads(done.stdout)["deadline"]
    assert deadline["sources"] == 1
    assert deadline["probability"] >= deadline["sure"] == 0.99
    refused = coget(["plan", "--by", "+0.5 s", *urls], home)
    assert refused.returncode == 9
    assert "use --by" in refused.stderr
    assert not (home / "big").exists()


def test_the_spared_source_helps_when_the_first_one_stops(servers, home):
    plan = coget(["plan", "--json", *(server.url("big") for server in servers)], home)
    preferred = json.loads(plan.stdout)["shares"][0]["url"]
    first = next(server for server in servers if server.url("big") == preferred)
    with coget_process(words(servers, "--by", "+60 s"), home) as process:
        data = home / "here.coget" / "data"
        wait_until(lambda: data.exists() and data.stat().st_blocks * 512 > 1 << 20)
        first.pause()
        output, stderr = process.communicate()
    assert process.returncode in (0, 9), stderr  # 9 only on a machine that is too slow for the minute
    assert (home / "here").read_bytes() == BIG
    other = next(source for source in json.loads(output)["sources"] if source["url"] != preferred)
    assert other["bytes"] > 0


def test_a_late_file_is_complete_and_its_status_says_so(servers, home):
    with coget_process(words(servers, "--by", "+15 s", "--sure", "60"), home) as process:
        data = home / "here.coget" / "data"
        wait_until(lambda: data.exists() and data.stat().st_blocks * 512 > 1 << 20)
        for server in servers:
            server.pause()
        stderr = iter(process.stderr.readline, "")
        warned = next(line for line in stderr if "with all sources" in line)
        wait_until(lambda: "0 %" in next(stderr))
        for server in servers:
            server.resume()
        output, _ = process.communicate()
    report = json.loads(output)
    assert (home / "here").read_bytes() == BIG
    assert report["deadline"]["warnings"]
    assert "%" in warned
    assert process.returncode == (0 if report["deadline"]["kept"] else 9)


def test_sources_about_which_nothing_is_known_are_measured_first(servers, tmp_path):
    home = tmp_path / "new"
    home.mkdir()
    done = coget(words(servers, "--by", "+10 min"), home)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["deadline"]["probability"] is None
    assert report["deadline"]["kept"]
    assert {source["outcome"] for source in report["sources"]} == {"ok"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--by", "soon"), "is not a time"),
        (("--by", "2001-01-01"), "has passed"),
        (("--by", "25:00"), "is not a time"),
        (("--sure", "99"), "--sure makes no sense without --by"),
        (("--by", "+1 h", "--sure", "100"), "100"),
        (("--by", "+1 h", "--staging", "auto"), "--staging"),
        (("--by", "+1 h", "--strategy", "single"), "--strategy single"),
        (("--by", "+3000000 d"), "more than ten years"),
    ],
)
def test_invalid_deadlines_are_refused(servers, tmp_path, given, message):
    done = coget(words(servers, *given), tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_several_files_have_no_common_deadline(servers, tmp_path):
    metalink = tmp_path / "two.meta4"
    files = "".join(f'<file name="{name}"><url>{servers[0].url(name)}</url></file>' for name in ("big", "small"))
    metalink.write_text(f'<metalink xmlns="urn:ietf:params:xml:ns:metalink">{files}</metalink>')
    for command in ("get", "plan"):
        done = coget([command, "--by", "+10 min", str(metalink)], tmp_path)
        assert done.returncode == 2
        assert "--by is for one file" in done.stderr
