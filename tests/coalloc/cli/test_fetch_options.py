"""The options of everyday use of `coget get`, on real servers."""

import json
import sqlite3

import pytest

from tests.support.coget import coget
from tests.support.nginx import Nginx

SIZE = 3_000_000


@pytest.fixture
def web(tmp_path):
    """A web server; what is below /busy/ is refused."""
    more = "location /busy/ { return 503; } location /slow/ { limit_rate 100k; }"
    with Nginx(tmp_path / "www", tmp_path / "run", more=more) as server:
        (server.root / "slow").mkdir()
        for name in ("x", "slow/x"):
            (server.root / name).write_bytes(bytes(range(125)) * (SIZE // 125))
        yield server


@pytest.mark.parametrize("words", [[], ["--streams", "4"], ["-o", "-"]], ids=["one", "streams", "pipe"])
def test_a_limited_rate_is_kept_and_is_not_taken_for_the_rate_of_the_path(web, home, words):
    rate = ["get", "--limit-rate", "2 MB/s"]
    done = coget([*rate, *words, *([] if "-o" in words else ["--json"]), web.url("x")], home)
    assert done.returncode == 0
    with sqlite3.connect(home / ".local/share/coget/history.sqlite") as database:
        ((started, ended, busy),) = database.execute("SELECT started, ended, busy_seconds FROM transfers")
    database.close()
    assert ended - started > 0.9  # 1.5 s, but the last piece, of 0.5 s, comes as fast as it can
    if "-o" not in words:
        (source,) = json.loads(done.stdout)["sources"]
        assert source["outcome"] == "ok"
        assert source["held_seconds"] > 0.5
        assert busy == pytest.approx(source["seconds"] - source["held_seconds"])


def test_the_limit_of_the_machine_is_in_the_configuration(web, home):
    (home / ".config/coget").mkdir(parents=True)
    (home / ".config/coget/config.toml").write_text('limit_rate = "fast"\n')
    done = coget(["get", web.url("x")], home)
    assert done.returncode == 2
    assert "invalid `limit_rate` in config.toml" in done.stderr
    (home / ".config/coget/config.toml").write_text('limit_rate = "3 MB/s"\n')
    done = coget(["get", "--json", web.url("x")], home)
    assert json.loads(done.stdout)["sources"][0]["held_seconds"] > 0


def test_without_retries_the_first_failure_counts(web, home):
    done = coget(["get", "--json", "--retry", "0", web.url("busy/x")], home)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (3, "server_busy")


def test_the_time_of_a_file_can_be_limited_and_its_data_are_kept(web, home):
    done = coget(["get", "--json", "--max-time", "1", web.url("slow/x")], home)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (5, "transfer_failed")
    assert json.loads(done.stdout)["error"]["transient"]
    assert (home / "x.coget" / "data").exists()


def test_no_clobber_protects_also_a_name_that_the_user_chose(web, home):
    (home / "x").write_text("mine")
    done = coget(["get", "--json", "--no-clobber", web.url("x")], home)
    assert (done.returncode, json.loads(done.stdout)["error"]["code"]) == (7, "target_exists")
    assert (home / "x").read_text() == "mine"
    assert coget(["get", web.url("x")], home).returncode == 0
    assert coget(["get", "--no-clobber", web.url("x")], home).returncode == 0  # the same content
