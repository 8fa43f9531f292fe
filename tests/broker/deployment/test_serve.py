"""The broker's first start, and its end by power failures."""

import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from tests.support.broker import PROGRAM, BrokerProcess, kept_by, reports
from tests.support.coget import without
from tests.support.effort import effort
from tests.support.nginx import Nginx
from tests.support.programs import run
from tests.support.waiting import PATIENCE, wait_until


def test_it_starts_with_an_empty_database_and_ends_on_a_signal(empty_database, tmp_path):
    with BrokerProcess(empty_database, tmp_path) as broker:
        assert broker.client().get("/broker/v1/whoami").json()["role"] == "admin"
        assert httpx.get(f"{broker.url}/readyz", timeout=PATIENCE).json() == {"status": "ok"}
        assert broker.client().put("/broker/v1/sites/X", json={"name": "X"}).status_code == 200
        assert "coget_broker_requests_total" in httpx.get(f"{broker.url}/metrics", timeout=PATIENCE).text
        token = broker.token
    assert broker.process.returncode in (0, -15)
    assert token not in json.dumps(broker.events())
    with BrokerProcess(empty_database, tmp_path, token) as again:
        assert [site["name"] for site in again.client().get("/broker/v1/sites").json()["sites"]] == ["X"]


def test_without_numba_it_serves_and_logs_the_remedy(empty_database, tmp_path, monkeypatch):
    for name, value in without("numba", tmp_path).items():
        monkeypatch.setenv(name, value)
    with BrokerProcess(empty_database, tmp_path) as broker:
        assert httpx.get(f"{broker.url}/readyz", timeout=PATIENCE).json() == {"status": "ok"}
        (warning,) = [event for event in broker.events() if "numba" in event["event"]]
        assert (warning["level"], warning["remedy"]) == ("warning", "pip install 'coget[compiled]'")


def test_reports_acknowledged_before_sigkill_are_stored_once(empty_database, tmp_path):
    acknowledged: list[int] = []
    with BrokerProcess(empty_database, tmp_path) as broker:
        token = broker.token

        def report(lane: int) -> None:
            client = broker.client()
            with suppress(httpx.TransportError):
                for part in range(10_000):
                    begin = 1_000_000 * lane + 20 * part
                    answer = client.post("/broker/v1/transfers", json=reports(begin, 20))
                    assert answer.status_code == 200
                    acknowledged.extend(range(begin, begin + 20))

        lanes = [threading.Thread(target=report, args=(lane,)) for lane in range(4)]
        for lane in lanes:
            lane.start()
        wait_until(lambda: len(acknowledged) >= 1000 or broker.process.poll() is not None)
        assert broker.process.poll() is None
        broker.process.kill()
        for lane in lanes:
            lane.join()
    with BrokerProcess(empty_database, tmp_path, token) as again:
        client = again.client()
        kept = kept_by(client)
        assert len(kept) == len(set(kept))
        assert set(acknowledged) <= set(kept)
        some = sorted(acknowledged)[:100]
        answer = client.post("/broker/v1/transfers", json=[reports(i, 1)[0] for i in some])
        assert answer.json() == {"accepted": 0, "known": 100}


@pytest.mark.long
def test_an_import_that_sigkill_cut_is_finished_by_sending_it_again(empty_database, tmp_path):
    count = effort(4000, 20_000)
    lines = [
        json.dumps({"name": f"big:{i:06}", "size": i, "replicas": [{"endpoint": "e"}]}).encode() + b"\n"
        for i in range(count)
    ]
    with BrokerProcess(empty_database, tmp_path) as broker:
        token = broker.token
        client = broker.client()
        client.put("/broker/v1/sites/S", json={"name": "S"})
        endpoint = {"name": "e", "site": "S", "scheme": "ftp", "host": "h.example"}
        client.put("/broker/v1/endpoints/e", json=endpoint)

        def until_half():
            yield b"".join(lines[: count // 2])
            wait_until(lambda: "big:001000" in client.get("/broker/v1/datasets", params={"prefix": "big:001"}).text)
            broker.process.kill()
            yield b"".join(lines[count // 2 :])

        with pytest.raises(httpx.TransportError):
            broker.client().post("/broker/v1/import", content=until_half())
    with BrokerProcess(empty_database, tmp_path, token) as again:
        client = again.client()
        report = client.post("/broker/v1/import", content=b"".join(lines)).text.splitlines()
        end = json.loads(report[-1])
        assert (len(report), end["kept"], end["refused"]) == (1, count, 0)
        assert end["changed"] < count
        exported = client.get("/broker/v1/export").text.splitlines()
        assert json.loads(exported[-1]) == {"end": True, "count": count}
        assert len({json.loads(line)["name"] for line in exported[:-1]}) == count


def _program(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return run([PROGRAM, *words], cwd=cwd, text=True)


def test_tokens_are_made_listed_and_revoked_beside_it(tmp_path):
    database = f"sqlite:///{tmp_path / 'b.sqlite'}"
    early = _program("token", "list", "--database", database, cwd=tmp_path)
    assert (early.returncode, "coget-broker upgrade" in early.stderr) == (2, True)
    assert _program("upgrade", "--database", database, cwd=tmp_path).returncode == 0
    made = _program("token", "create", "ann", "--role", "curator", "--database", database, cwd=tmp_path)
    token = made.stdout.strip()
    with BrokerProcess(database, tmp_path, token) as broker:
        assert broker.client().get("/broker/v1/whoami").json()["subject"] == "ann"
        listed = _program("token", "list", "--database", database, cwd=tmp_path)
        assert "ann" in listed.stdout
        assert token not in listed.stdout
        assert _program("token", "revoke", "1", "--database", database, cwd=tmp_path).returncode == 0
    refused = _program("token", "revoke", "1", "--database", database, cwd=tmp_path)
    assert (refused.returncode, "no token 1" in refused.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serve", "--rank", "magic"), "magic is unknown: use priority"),
        (("serve", "--database", "mysql://x"), "is not a database that the broker knows"),
        (("token", "create", "a b", "--database", "sqlite:///x.sqlite"), "subject"),
        (("serve", "--port", "99999"), "99999"),
    ],
)
def test_wrong_arguments_exit_with_status_2(tmp_path, words, message):
    result = _program(*words, cwd=tmp_path)
    assert (result.returncode, message in result.stderr) == (2, True), result.stderr
    assert "Traceback" not in result.stderr


def test_without_the_broker_extra_it_prints_what_to_install(tmp_path):
    code = "import sys; sys.modules['pydantic'] = None; import broker.cli"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (result.returncode, "pip install 'coget[broker]'" in result.stderr) == (1, True)
    assert "Traceback" not in result.stderr


def test_aria2c_downloads_a_file_from_the_metalink_of_the_broker(tmp_path):
    content = bytes(range(256)) * 4096
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.dat").write_bytes(content)
    with (
        Nginx(tmp_path / "one", tmp_path / "one.run") as one,
        Nginx(tmp_path / "two", tmp_path / "two.run") as two,
        BrokerProcess(f"sqlite:///{tmp_path / 'b.sqlite'}", tmp_path, "", "--anonymous") as broker,
    ):
        client = broker.client()
        client.put("/broker/v1/sites/S", json={"name": "S"})
        for name, server in (("one", one), ("two", two)):
            endpoint = {"name": name, "site": "S", "scheme": "http", "host": "127.0.0.1", "port": server.port}
            assert client.put(f"/broker/v1/endpoints/{name}", json=endpoint).status_code == 200
        line = {"name": "lab:x.dat", "size": len(content), "replicas": [{"endpoint": "one"}, {"endpoint": "two"}]}
        client.post("/broker/v1/import", content=json.dumps(line))
        (tmp_path / "got").mkdir()
        url = f"{broker.url}/broker/v1/replicas/resolve?name=lab:x.dat"
        done = subprocess.run(
            ["aria2c", "-q", "--min-split-size=1M", "--dir", tmp_path / "got", url], timeout=PATIENCE, check=False
        )
        assert done.returncode == 0
        assert (tmp_path / "got" / "x.dat").read_bytes() == content
