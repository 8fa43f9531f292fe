"""`coget collect --guarantee` over real servers with limited rates: kept, refused, broken, and wrong requests."""

import asyncio
import json
from math import inf, nan

import pytest

from coalloc import api
from coalloc.errors import UsageError
from tests.support.coget import coget
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

CLASS = "*.h5"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def slow(tmp_path):
    """A server that sends a few hundred kB/s to a job: after 100 kB, each connection gets 100 kB/s."""
    (tmp_path / "slow").mkdir()
    with Nginx(tmp_path / "slow", tmp_path / "n", more="limit_rate 100k;") as server:
        yield server


def found(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def files(server, **sizes: int) -> dict[str, bytes]:
    """Return files of these sizes of a server, by name."""
    return {f"{name}.h5": random_file(server.root / f"{name}.h5", size) for name, size in sizes.items()}


def request(server, tmp_path, *classes):
    urls = tuple(server.url(each.name) for each in server.root.iterdir())
    return api.CollectRequest(urls, str(tmp_path / "out"), guarantees=classes)


def test_a_class_is_kept_and_all_files_are_right(slow, tmp_path):
    content = files(slow, a=1_100_000, b=1_100_000)
    content["bulk.dat"] = random_file(slow.root / "bulk.dat", 1_000_000)
    urls = [slow.url(name) for name in content]
    (tmp_path / "classes.yaml").write_text(f"'{CLASS}': {{records: 10, size: 10 kB, sure: 90}}\n")
    done = coget(["collect", *urls, "--to", "out", "--json", "--guarantee", "classes.yaml"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert found(tmp_path / "out") == content
    promised = json.loads(done.stdout)["guarantees"][CLASS]
    assert promised["probability"] > 0.9
    assert promised.keys() == {"rate", "share", "moment", "probability", "possible", "kept", "seconds", "missed"}
    assert promised["seconds"] > 0
    assert (promised["rate"], promised["share"], promised["kept"]) == (100_000, 0.9, True)
    assert f"{CLASS}: 100 kB/s in 90 % of the seconds: " in done.stderr


def test_a_rate_that_the_servers_do_not_have_is_refused(slow, tmp_path):
    files(slow, a=8_000_000)
    done = coget(["collect", slow.url("a.h5"), "--to", "out", "--json", "--guarantee", f"{CLASS}=40 MB/s"], tmp_path)
    assert done.returncode == 9
    refused = json.loads(done.stdout)["guarantees"][CLASS]
    assert 0 < refused["possible"] < 1_000_000
    assert refused["kept"] is None
    assert f"{CLASS}: 40.0 MB/s in 95 % of the seconds would be kept with a probability of " in done.stderr
    assert f"--guarantee '{CLASS}=" in done.stderr
    assert not (tmp_path / "out" / "a.h5").exists()


@pytest.mark.long
async def test_a_server_that_stands_still_after_the_promise_breaks_it(slow, tmp_path):
    content = files(slow, a=6_000_000)
    promised, late = asyncio.Event(), asyncio.Event()

    def watch(view):
        found = view.guarantees.get(CLASS)
        if found and found.seconds:
            promised.set()
        if found and found.missed:
            late.set()

    task = asyncio.create_task(api.collect(request(slow, tmp_path, api.GuaranteedClass(CLASS, 1e5, 0.999)), watch))
    async with asyncio.timeout(PATIENCE):
        waiting = asyncio.create_task(promised.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        assert promised.is_set(), await task
        slow.pause()
        await late.wait()
        slow.resume()
        report = await task
    assert found(tmp_path / "out") == content
    result = report.guarantees[CLASS]
    assert not result.kept
    assert 0 < result.missed <= result.seconds


@pytest.mark.parametrize("rate", [nan, inf, -inf, -1.0, 0.0, 0.5, 2.0**63, 1e308])
async def test_a_rate_that_is_none_is_a_mistake(tmp_path, rate):
    with pytest.raises(UsageError, match="bytes per second cannot be promised"):
        await api.collect(
            api.CollectRequest(("ftp://127.0.0.1:9/x",), str(tmp_path), guarantees=(api.GuaranteedClass("*", rate),))
        )


@pytest.mark.parametrize("share", [nan, inf, -inf, -1.0, 0.0, 0.49, 0.9991, 1.0, 95.0])
async def test_a_share_that_is_none_is_a_mistake(tmp_path, share):
    wanted = (api.GuaranteedClass("*", 1e6, share),)
    with pytest.raises(UsageError, match="% of the seconds cannot be promised"):
        await api.collect(api.CollectRequest(("ftp://127.0.0.1:9/x",), str(tmp_path), guarantees=wanted))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "all-at-once"}, "come directly"),
        ({"via": ("ftp://127.0.0.1:9/",)}, "come directly"),
        ({"routes": ("none",)}, "come directly"),
        ({"limit_rate": 1000}, "--guarantee makes no sense with a limited rate"),
        ({"to": "ftp://127.0.0.1:9/x"}, "guaranteed only to this machine"),
        ({"guarantees": (api.GuaranteedClass("*", 1e6),) * 2}, "the same pattern"),
        ({"guarantees": (api.GuaranteedClass("", 1e6),)}, "no pattern"),
    ],
)
async def test_options_that_exclude_a_guarantee(tmp_path, options, message):
    wanted = api.CollectRequest(("ftp://127.0.0.1:9/x",), str(tmp_path), guarantees=(api.GuaranteedClass("*", 1e6),))
    with pytest.raises(UsageError, match=message):
        await api.collect(wanted._replace(**options))


async def test_a_pattern_without_files_is_a_mistake(slow, tmp_path):
    files(slow, a=10)
    with pytest.raises(UsageError, match="no file fits the pattern"):
        await api.collect(request(slow, tmp_path, api.GuaranteedClass("*.hdf5", 1e6)))
    assert not (tmp_path / "out" / "a.h5").exists()


@pytest.mark.parametrize(
    "value",
    [
        *("*.h5", "*.h5=", "=5 MB/s", "*.h5=nan", "*.h5=-1 MB/s", "*.h5=0", "*.h5=1e40"),
        *("*=1 MB/s@nan", "*=1 MB/s@101", "*=1 MB/s@", "*=1 MB/s@inf"),
    ],
)
def test_values_that_are_no_guarantee(tmp_path, value):
    done = coget(["collect", "ftp://127.0.0.1:9/x", "--to", "out", "--guarantee", value], tmp_path)
    assert done.returncode == 2
    assert "Invalid value for '--guarantee'" in done.stderr
