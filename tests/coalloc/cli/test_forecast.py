"""`coget forecast evaluate` and `coget history import`, as users run them."""

import json
import random

import pytest

from tests.support.coget import coget, without
from tests.support.effort import LONG, effort

MB = 1_000_000
FORECASTERS = {"last", "regression", "kernel", "hierarchy", "percentile", "hedge"}


@pytest.fixture
def log(tmp_path):
    """Transfers whose rate grows with their size."""
    chance, rows = random.Random(1), ["source,sink,start,seconds,bytes"]
    for i in range(300):
        size = chance.choice([5, 50, 500]) * MB
        rate = (size / MB) ** 0.5 * MB * chance.lognormvariate(0, 0.1)
        rows.append(f"ftp://a.example,here,{3600 * i},{size / rate},{size}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join([*rows, "ftp://a.example,here,soon,1,1"]))
    return path


def test_a_table_of_how_good_forecasters_were(log, home):
    result = coget(["forecast", "evaluate", str(log)], home)
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "a table of transfers: 300 transfers, the last 180 scored"
    assert "line 302 left out" in lines[1]
    names = [line.split("  ")[0] for line in lines[3:-1]]
    assert set(names) >= FORECASTERS
    assert names.index("hedge") < names.index("last")


def test_json(log, home):
    found = json.loads(coget(["forecast", "evaluate", "--json", str(log)], home).stdout)
    assert (found["transfers"], len(found["refused"])) == (300, 1)
    by_name = {each["name"]: each for each in found["forecasters"]}
    assert by_name["hedge"]["mdape"] < 0.2 < by_name["last"]["mdape"]
    assert by_name["hedge"]["p10"]["missed"] == pytest.approx(0.1, abs=0.06)
    few = log.with_name("few.csv")
    few.write_text("\n".join(log.read_text().splitlines()[:21]))
    found = json.loads(coget(["forecast", "evaluate", "--all", "--json", str(few)], home).stdout)
    assert {each["name"] for each in found["forecasters"]} > by_name.keys()


@pytest.mark.long
def test_only_a_long_log_without_numba_gets_an_installation_hint(home, tmp_path):
    """The short form of the tests treats smaller logs as long: a really long one takes 20 s."""
    long, short = effort(20, 1600), effort(10, 100)
    rows = [f"ftp://a.example,{3600 * i},10,{(i % 7 + 1) * 10 * MB}" for i in range(long)]
    environment = without("numba", tmp_path)
    if not LONG:
        with (tmp_path / "sitecustomize.py").open("a") as code:
            code.write("import coalloc.cli.forecast\nsys.modules['coalloc.cli.forecast'].WORTH_COMPILING = 15\n")
    for name, count, hints in (("long.csv", long, 1), ("short.csv", short, 0)):
        (tmp_path / name).write_text("\n".join(["source,start,seconds,bytes", *rows[:count]]))
        result = coget(["forecast", "evaluate", str(tmp_path / name)], home, **environment)
        assert result.returncode == 0, result.stderr
        assert result.stderr.count("run: pip install 'coget[compiled]'") == hints


def test_missing_and_too_short_logs_are_refused(log, home, tmp_path):
    (tmp_path / "one.csv").write_text("\n".join(log.read_text().splitlines()[:2]))
    for path, message in (("nowhere", "cannot read"), ("one.csv", "too few transfers for a forecast: 1")):
        result = coget(["forecast", "evaluate", str(tmp_path / path)], home)
        assert result.returncode == 2
        assert message in result.stderr


def test_an_import_makes_servers_known_once(log, home):
    for new in (300, 0):
        result = coget(["history", "import", str(log)], home)
        assert result.returncode == 0, result.stderr
        assert result.stdout == f"a table of transfers: 300 transfers, 300 of them usable, {new} new\n"
    (source,) = json.loads(coget(["history", "--json"], home).stdout)["sources"]
    assert (source["source"], source["transfers"]) == ("ftp://a.example", 300)
    assert coget(["history", "import", "nowhere"], home).returncode == 2


def test_import_skips_invalid_addresses_and_fails_if_the_history_is_off(home, tmp_path):
    rows = [f"{source},{i},10,100000000" for i, source in enumerate(["ftp://a:x/", "", "ftp://[::1", "dtn.example"])]
    (tmp_path / "odd.csv").write_text("\n".join(["source,start,seconds,bytes", *rows]))
    result = coget(["history", "import", str(tmp_path / "odd.csv")], home)
    assert result.stdout == "a table of transfers: 1 transfers, 1 of them usable, 1 new\n"
    assert "gsiftp://dtn.example" in coget(["history"], home).stdout
    off = coget(["history", "import", str(tmp_path / "odd.csv")], home, COGET_HISTORY="off")
    assert (off.returncode, "COGET_HISTORY is off" in off.stderr) == (2, True)
