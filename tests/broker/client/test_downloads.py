"""coget with a broker: the command, real GridFTP servers, and a broker in a process of its own."""

import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from tests.support.broker import BrokerProcess, broker_in
from tests.support.coget import CONTENT, NAME, coget, patient
from tests.support.mounts import silent_names
from tests.support.waiting import wait_until

DATASET = "lab:2024/x.root"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with broker_in(tmp_path) as running:
        yield running


@pytest.fixture
def known(broker: BrokerProcess, start_gridftp: Callable, tmp_path: Path) -> httpx.Client:
    """A client of a broker that knows a dataset at two GridFTP servers."""
    client = broker.client()
    client.put("/broker/v1/sites/LAB", json={"name": "LAB"})
    places = []
    for name in ("one", "two"):
        folder = tmp_path / name
        (folder / "2024").mkdir(parents=True)
        (folder / "2024" / "x.root").write_bytes(CONTENT)
        server = start_gridftp(folder)
        endpoint = {"name": name, "site": "LAB", "scheme": "ftp", "host": "127.0.0.1", "port": server.port}
        assert client.put(f"/broker/v1/endpoints/{name}", json=endpoint).status_code == 200
        places.append({"endpoint": name, "path": server.url("2024/x.root").partition("//")[2].partition("/")[2]})
    line = {"name": DATASET, "size": len(CONTENT), "replicas": places}
    report = client.post("/broker/v1/import", content=json.dumps(line)).json()
    assert report["kept"] == 1
    return client


def _environment(broker: BrokerProcess) -> dict[str, str]:
    named = {"COGET_BROKER": broker.url, "COGET_BROKER_TOKEN": broker.token, "COGET_SITE": "HERE"}
    return {**named, **patient(broker.folder)}


def _reported(client: httpx.Client) -> list[dict]:
    return client.get("/broker/v1/transfers").json()["transfers"]


def test_a_dataset_name_is_enough_and_its_transfers_are_reported(broker, known, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    result = coget(["--json", "--quiet", DATASET], home, **_environment(broker))
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert (home / "x.root").read_bytes() == CONTENT
    assert len(report["sources"]) == 2
    transfers = _reported(known)
    assert sum(each["bytes"] for each in transfers) == len(CONTENT)
    assert {each["sink"] for each in transfers} == {"HERE"}
    assert {each["outcome"] for each in transfers} <= {"ok", "slow"}
    assert not list((home / ".local/share/coget/history.sqlite.outbox").iterdir())


def _digest(broker: BrokerProcess) -> str:
    """Return what the names of reports for this broker contain."""
    return hashlib.blake2b(broker.url.encode(), digest_size=8).hexdigest()


def _decided(database: Path) -> list[dict]:
    with sqlite3.connect(database) as connection:
        connection.row_factory = sqlite3.Row
        joined = "SELECT decisions.*, traces.sources AS parts, ranges FROM decisions JOIN traces ON decision_id = id"
        return [dict(row) for row in connection.execute(f"{joined} ORDER BY id")]


def test_a_download_reports_its_sources_and_reason_to_the_broker(broker, known, tmp_path):
    assert coget(["--quiet", DATASET], tmp_path, **_environment(broker)).returncode == 0
    (decision,) = _decided(tmp_path / "b.sqlite")
    assert (decision["kind"], decision["thing"], decision["sink"], decision["outcome"]) == (
        "download",
        DATASET,
        "HERE",
        "ok",
    )
    assert (decision["subject"], decision["bytes"], decision["task_id"]) == ("admin", len(CONTENT), None)
    assert decision["rationale"].startswith("adaptive:")
    sources, trace = json.loads(decision["parts"]), json.loads(decision["ranges"])
    assert sum(each["bytes"] for each in sources) == len(CONTENT)
    assert sum(each["planned_bytes"] for each in sources) == len(CONTENT)
    assert sum(each[3] for each in trace["ranges"]) == len(CONTENT)
    assert decision["best_seconds"] <= decision["fetch_seconds"] <= decision["seconds"]
    (tmp_path / "one" / "2024" / "x.root").unlink()
    (tmp_path / "two" / "2024" / "x.root").unlink()
    assert coget(["--quiet", "-o", "other", DATASET], tmp_path, **_environment(broker)).returncode != 0
    failed = _decided(tmp_path / "b.sqlite")[1]
    assert (failed["outcome"], failed["best_seconds"]) == ("failed", None)
    assert {each["outcome"] for each in json.loads(failed["parts"])} == {"failed"}


def test_a_collect_job_reports_its_hops_to_the_broker(broker, known, tmp_path):
    result = coget(["collect", "--json", "--to", str(tmp_path / "in"), DATASET], tmp_path, **_environment(broker))
    assert result.returncode == 0, result.stderr
    (decision,) = _decided(tmp_path / "b.sqlite")
    assert (decision["kind"], decision["thing"], decision["sink"], decision["best_seconds"]) == (
        "collect",
        "a file",
        "HERE",
        None,
    )
    hops = json.loads(decision["ranges"])["ranges"]
    assert sum(each[3] for each in hops) == len(CONTENT)
    assert all(0 <= each[4] < each[7] <= decision["seconds"] for each in hops)
    stretches = [each for pair in json.loads(result.stdout)["pairs"] for each in pair["stretches"]]
    assert [each["bytes"] for each in stretches] == [each[3] for each in hops]
    page = known.get("/broker/v1/reports/transfer", params={"id": decision["id"]}).json()
    assert page["figures"][0]["title"] == "Hops over time"


def test_the_next_transfer_begins_with_the_forecasts_of_the_broker(broker, known, tmp_path):
    now = time.time()
    sources = [each.rpartition("/")[0] for each in _urls(known)]
    reports = [
        {
            "id": f"{rate}-{i}",
            "source": "/".join(source.split("/")[:3]),
            "sink": "HERE",
            "started": now - 1000 + 10 * i,
            "ended": now - 999 + 10 * i,
            "bytes": rate + i,
        }
        for source, rate in zip(sources, (300_000_000, 100_000_000), strict=True)
        for i in range(40)
    ]
    assert known.post("/broker/v1/transfers", json=reports).json()["accepted"] == 80

    def planned():
        plan = coget(["plan", "--json", DATASET], tmp_path, **_environment(broker))
        assert plan.returncode == 0, plan.stderr
        shares = json.loads(plan.stdout)["shares"]
        return shares if all("hedge" in share["reason"] for share in shares) else None

    shares = wait_until(planned)
    assert 2 < shares[0]["bytes"] / shares[1]["bytes"] < 4.5
    assert shares[0]["rate_p10_p90"][0] <= shares[0]["rate"] <= shares[0]["rate_p10_p90"][1]
    shown = coget(["datasets", DATASET], tmp_path, **_environment(broker))
    assert DATASET in shown.stdout
    assert "MB/s" in shown.stdout


def _urls(client: httpx.Client) -> list[str]:
    answer = client.post("/broker/v1/replicas/resolve", json={"names": [DATASET]})
    return [each["url"] for each in json.loads(answer.text.splitlines()[0])["replicas"]]


def test_a_broker_that_is_down_fails_no_transfer_and_hears_of_it_later(broker, known, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    urls, down = _urls(known), {**_environment(broker), "COGET_BROKER": "http://127.0.0.1:9"}
    result = coget(["--quiet", "-o", "a", *urls], home, **down)
    assert (result.returncode, result.stderr) == (0, "")
    assert (home / "a").read_bytes() == CONTENT
    (waiting,) = (home / ".local/share/coget/history.sqlite.outbox").iterdir()
    assert (waiting.stat().st_mode & 0o777, waiting.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    written_at, _, number = waiting.name.split("-", 2)
    waiting.rename(waiting.with_name(f"{written_at}-{_digest(broker)}-{number}"))  # as if the broker had been down
    assert coget(["--quiet", "-o", "b", *urls], home, **_environment(broker)).returncode == 0
    assert sum(each["bytes"] for each in _reported(known)) == 2 * len(CONTENT)
    assert len({each["key"] for each in _decided(tmp_path / "b.sqlite")}) == 2
    assert not list((home / ".local/share/coget/history.sqlite.outbox").iterdir())
    failed = coget([DATASET], home, **down)
    assert failed.returncode == 3
    assert "does not answer" in failed.stderr
    assert "give replica URLs" in failed.stderr


def test_a_silent_name_service_does_not_delay_the_exit(broker, known, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    environment = {"COGET_BROKER": "https://broker.example", "COGET_SITE": "HERE"}
    with silent_names(tmp_path) as prefix:
        result = coget(["--quiet", "-o", "a", *_urls(known)], home, prefix, **environment)
    assert (result.returncode, result.stderr, (home / "a").read_bytes()) == (0, "", CONTENT)
    assert list((home / ".local/share/coget/history.sqlite.outbox").iterdir())


def test_a_replica_with_wrong_bytes_is_marked_bad(broker, known, tmp_path):
    (tmp_path / "two" / "2024" / "x.root").write_bytes(CONTENT[::-1])  # wrong wherever the file is asked for
    line = {"name": DATASET, "checksums": {"adler32": f"{zlib.adler32(CONTENT):08x}"}}
    known.post("/broker/v1/import", content=json.dumps(line))
    result = coget(["--json", "--strategy", "brute", DATASET], tmp_path, **_environment(broker))  # half from each
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "x.root").read_bytes() == CONTENT
    (bad,) = known.get("/broker/v1/replicas").json()["replicas"]
    assert (bad["endpoint"], bad["state"]) == ("two", "BAD")


def test_a_guess_of_the_broker_does_not_outweigh_the_users_own_history(broker, known, tmp_path):
    urls, now = _urls(known), time.time()
    for url in urls:
        assert coget(["--quiet", "-o", "own", url], tmp_path).returncode == 0
        (tmp_path / "own").unlink()
    seen = {share["url"]: share["rate"] for share in _shares(tmp_path, urls, {})}
    slow = {"id": "x", "source": "ftp://other.example", "sink": "HERE", "started": now - 100, "ended": now - 1}
    known.post("/broker/v1/transfers", json={**slow, "bytes": 10_000_000})
    planned = {share["url"]: share["rate"] for share in _shares(tmp_path, [DATASET], _environment(broker))}
    assert None not in seen.values()
    assert planned == seen


def _shares(home: Path, words: list[str], environment: dict[str, str]) -> list[dict]:
    return json.loads(coget(["plan", "--json", *words], home, **environment).stdout)["shares"]


@pytest.mark.parametrize("name", ["x" * 300, "/dev/fd/63", "no/such/dataset"])
def test_a_name_that_is_neither_file_nor_dataset_is_refused(broker, known, tmp_path, name):
    result = coget([name], tmp_path, **_environment(broker))
    assert (result.returncode, "there is no dataset" in result.stderr) == (3, True), result.stderr


def test_search_lists_datasets_by_prefix(broker, known, tmp_path):
    found = coget(["search", "lab:20"], tmp_path, **_environment(broker))
    assert (found.returncode, DATASET in found.stdout) == (0, True)
    found = coget(["search", "--json", "none"], tmp_path, **_environment(broker))
    assert (found.returncode, json.loads(found.stdout)) == (0, [])
    missing = coget(["lab:none"], tmp_path, **_environment(broker))
    assert (missing.returncode, "there is no dataset lab:none" in missing.stderr) == (3, True)


def test_register_takes_size_and_checksums_from_the_servers(broker, known, tmp_path):
    urls = [url.replace("x.root", "y.root") for url in _urls(known)]
    for name in ("one", "two"):
        (tmp_path / name / "2024" / "y.root").write_bytes(CONTENT)
    result = coget(["register", "--json", "lab:y", *urls], tmp_path, **_environment(broker))
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["size"], document["new"], set(document["replicas"])) == (len(CONTENT), 2, set(urls))
    assert document["checksums"]
    assert coget(["--quiet", "lab:y"], tmp_path, **_environment(broker)).returncode == 0
    assert (tmp_path / "y").read_bytes() == CONTENT
    again = coget(["register", "lab:y", *urls], tmp_path, **_environment(broker))
    assert (again.returncode, "0 of 2 replicas are new" in again.stdout) == (0, True)
    (tmp_path / "one" / "2024" / "z.root").write_bytes(b"other bytes")
    wrong = coget(["register", "lab:y", urls[0].replace("y.root", "z.root")], tmp_path, **_environment(broker))
    assert (wrong.returncode, "is known with" in wrong.stderr) == (2, True), wrong.stderr


def test_a_directory_is_registered_file_by_file(broker, known, tmp_path):
    top = tmp_path / "one" / "tree"
    contents = {"a": b"first", "deep/er/b+c": b"second", "deep/empty": b"", "deep/zürich": CONTENT}
    for name, content in contents.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(content)
    (top / "deep" / "circle").symlink_to(top)
    url = _urls(known)[0].replace("2024/x.root", "tree/")
    result = coget(["register", "--json", "lab:tree", url], tmp_path, **_environment(broker))
    document = json.loads(result.stdout)
    assert (document["files"], document["bytes"], document["new"]) == (3, 11, 3)
    assert "ASCII" in document["refused"]["lab:tree/deep/zürich"]
    assert result.returncode == 3
    (top / "deep" / "zürich").unlink()
    again = coget(["register", "lab:tree", url], tmp_path, **_environment(broker))
    assert (again.returncode, "3 files, 11 bytes; 0 replicas are new" in again.stdout) == (0, True), again
    found = json.loads(coget(["search", "--json", "lab:tree/"], tmp_path, **_environment(broker)).stdout)
    sums = {each["name"].removeprefix("lab:tree/"): each["checksums"] for each in found}
    assert sums["deep/er/b+c"] == {"sha256": hashlib.sha256(b"second").hexdigest()}
    assert coget(["--quiet", "lab:tree/deep/er/b+c"], tmp_path, **_environment(broker)).returncode == 0
    assert (tmp_path / "b+c").read_bytes() == b"second"
    (top / "a").write_bytes(b"changed")
    changed = coget(["register", "lab:tree", url], tmp_path, **_environment(broker))
    assert (changed.returncode, "left out: lab:tree/a: " in changed.stderr) == (2, True), changed.stderr


def test_a_token_goes_to_its_broker_only(broker, known, tmp_path):
    config = tmp_path / "config" / "coget"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(f'broker = "{broker.url}"\nsite = "HERE"\n')
    tokens = config / "tokens.toml"
    tokens.write_text(f'"{broker.url.partition("//")[2]}" = "{broker.token}"\n')
    where = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    tokens.chmod(0o644)
    refused = coget(["search"], tmp_path, **where)
    assert (refused.returncode, "chmod 600" in refused.stderr) == (2, True)
    tokens.chmod(0o600)
    assert DATASET in coget(["search"], tmp_path, **where).stdout
    tokens.unlink()
    (tmp_path / "token").write_text(f"{broker.token}\n")
    in_file = {"COGET_BROKER_TOKEN_FILE": str(tmp_path / "token"), "COGET_BROKER": broker.url, **where}
    assert DATASET in coget(["search"], tmp_path, **in_file).stdout
    both = coget(["search"], tmp_path, COGET_BROKER_TOKEN="secret", **in_file)
    assert (both.returncode, "are both set" in both.stderr, "secret" in both.stderr) == (2, True, False)
    at_name = ["search", "--broker", broker.url.replace("127.0.0.1", "LocalHost")]
    elsewhere = coget(at_name, tmp_path, **where)
    assert (elsewhere.returncode, "no token was sent" in elsewhere.stderr) == (7, True)
    line = f'"localhost:{broker.url.rpartition(":")[2]}" = "TOKEN"'
    assert f"write the line {line} into {tokens}" in elsewhere.stderr
    tokens.write_text(line.replace("TOKEN", broker.token))
    tokens.chmod(0o600)
    assert DATASET in coget(at_name, tmp_path, **where).stdout
    clear = coget(["search"], tmp_path, COGET_BROKER="http://broker.example", COGET_BROKER_TOKEN="secret")
    assert (clear.returncode, "unencrypted" in clear.stderr, "secret" in clear.stderr) == (2, True, False)
    none = coget(["search"], tmp_path)
    assert (none.returncode, "--broker" in none.stderr) == (2, True)


ANSWERS = {
    "nothing": b"",
    "html": b"<html>log in</html>",
    "another shape": b"[1]",
    "not whole": b'{"name": "lab:x"}\n',
    "none of what was asked": b'{"end": true, "count": 0}\n',
    "endless": b"x" * 1000,
}
GOOD = {"name": "lab:x", "size": 1, "checksums": {}, "error": None}
REPLICA = {"url": "ftp://h.example/x", "rank": 1, "rate": None, "measured": True, "setup_seconds": 0.1, "rationale": ""}
WRONG = {
    "a local file": {"url": "file:///etc/hostname"},
    "an impossible port": {"url": "ftp://h.example:99999/x"},
    "a negative rate": {"rate": {"p10": -1, "p50": 1, "p90": 2}},
    "no number": {"rate": {"p10": 1, "p50": "x", "p90": 2}},
    "rates upside down": {"rate": {"p10": 3e6, "p50": 2e6, "p90": 1e6}},
    "an endless rate": {"rate": {"p10": 1, "p50": 2, "p90": 1e400}},
    "a set-up of a word": {"setup_seconds": "x"},
}
for what, change in WRONG.items():
    line = {**GOOD, "replicas": [{**REPLICA, **change}]}
    ANSWERS[what] = json.dumps(line).encode() + b'\n{"end": true, "count": 1}\n'


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", ANSWERS)
def test_a_malformed_answer_is_an_error_and_not_a_defect(tmp_path, what):
    class Stranger(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ANSWERS[what])

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            result = coget(["plan", "lab:x"], tmp_path, COGET_BROKER=f"http://127.0.0.1:{server.server_port}")
        finally:
            server.shutdown()
            thread.join()
    assert result.returncode in (2, 3), result.stderr
    assert "defect" not in result.stderr


def test_broken_files_in_the_outbox_do_not_fail_a_download(broker, known, tmp_path):
    outbox = tmp_path / ".local/share/coget/history.sqlite.outbox"
    outbox.mkdir(parents=True)
    name = f"{time.time():017.3f}-{_digest(broker)}"
    for i, text in enumerate(("", "{", "[]", '{"bad": [1]}', '{"observations": 5}', '{"observations": [{"id": "x"}]}')):
        (outbox / f"{name}-{i}.report").write_text(text)
    (outbox / "9.report").write_text("{}")
    another = f"{time.time():017.3f}-another"
    (outbox / f"{another}-9.report").write_text("{}")
    (outbox / "mine.json").write_text("a file of somebody else")
    result = coget(["--quiet", DATASET], tmp_path, **_environment(broker))
    assert result.returncode == 0, result.stderr
    assert sum(each["bytes"] for each in _reported(known)) == len(CONTENT)
    assert {path.name for path in outbox.iterdir()} == {"mine.json", f"{another}-9.report"}


def test_a_checksum_of_the_user_marks_no_replica(broker, known, tmp_path):
    result = coget(["--checksum", f"md5:{'0' * 32}", DATASET], tmp_path, **_environment(broker))
    assert result.returncode == 4
    assert known.get("/broker/v1/replicas").json()["replicas"] == []


def test_two_datasets_never_become_one_file(broker, known, tmp_path):
    (line,) = known.get("/broker/v1/export", params={"prefix": DATASET}).text.splitlines()[:-1]
    other = {**json.loads(line), "name": "lab:2023/x.root"}
    known.post("/broker/v1/import", content=json.dumps(other))
    result = coget([DATASET, "lab:2023/x.root"], tmp_path, **_environment(broker))
    assert (result.returncode, "would be written to the same file" in result.stderr) == (2, True)
    assert not (tmp_path / "x.root").exists()


def test_without_a_broker_names_are_files_as_before(tmp_path):
    result = coget([f"lab:{NAME.replace(' ', '_')}"], tmp_path)
    assert result.returncode == 2
    assert "is neither a URL nor a readable file" in result.stderr
