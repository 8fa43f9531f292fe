"""`coget doctor` with and without servers."""

import json
import re
import signal

from tests.support.coget import CONTENT, coget, without
from tests.support.depot import LOOPBACK, depots


def test_a_machine_alone_is_looked_at(home):
    result = coget(["doctor"], home)
    assert result.returncode == 0, result.stderr
    assert re.search(r"^coget +ok +\d+\.\d+\.\d+ on Python 3", result.stdout, re.M)
    assert "to do" in result.stdout


def test_something_that_must_be_repaired_is_status_1(home):
    (home / "file").touch()
    result = coget(["doctor"], home, COGET_HISTORY=str(home / "file" / "history.sqlite"))
    assert result.returncode == 1, result.stderr
    assert re.search(r"^history +wrong ", result.stdout, re.M)


def test_missing_numba_is_reported_with_a_remedy(home, tmp_path):
    findings = json.loads(coget(["doctor", "--json"], home, **without("numba", tmp_path)).stdout)["findings"]
    (finding,) = [each for each in findings if each["thing"] == "numba"]
    assert (finding["state"], finding["remedy"]) == ("limited", "pip install 'coget[compiled]'")
    findings = json.loads(coget(["doctor", "--json"], home).stdout)["findings"]
    assert [each["state"] for each in findings if each["thing"] == "numba"] == ["ok"]


def test_servers_that_answer(urls, home):
    result = coget(["doctor", *urls[:2]], home)
    assert result.returncode == 0
    assert len(re.findall(r"^127\.0\.0\.[23]:\d+ +ok +8\.39 MB, answered in", result.stdout, re.M)) == 2


def test_a_server_that_does_not_answer_is_status_3(servers, urls, home):
    servers[0].kill()
    result = coget(["doctor", "--json", *urls[:2]], home)
    assert result.returncode == 3
    dead, alive = json.loads(result.stdout)["servers"]
    assert (dead["ok"], dead["error"]["code"]) == (False, "unreachable")
    assert dead["error"]["remedy"]
    assert (alive["ok"], alive["size"], alive["error"]) == (True, len(CONTENT), None)


def test_failing_server_gets_a_finding_and_a_remedy(urls, home):
    result = coget(["doctor", urls[2]], home)
    assert result.returncode == 3
    assert len(re.findall(r"^127\.0\.0\.4:\d+ ", result.stdout, re.M)) == 2


def test_a_malformed_url_is_a_usage_error(home):
    result = coget(["doctor", "ftp://me:secret@[::1"], home)
    assert result.returncode == 2
    assert "ftp://[::1" in result.stderr
    assert "secret" not in result.stderr


def test_each_hop_of_a_route_is_checked(urls, home, tmp_path):
    with depots(tmp_path, LOOPBACK, LOOPBACK) as (one, two):
        route = f"{one.place},{two.place}"
        result = coget(["doctor", "--via", route, urls[0]], home)
        assert result.returncode == 0, result.stderr
        host, port = urls[0].split("/")[2].split(":")
        for place in (one.place, two.place, f"{host}:{port}"):
            assert re.search(rf"^{place} +ok +connected in \d+\.\d ms", result.stdout, re.M), place
        assert re.search(rf"^{host}:{port} +ok +8\.39 MB, answered in", result.stdout, re.M)
        two.stop(signal.SIGKILL)
        result = coget(["doctor", "--json", "--via", route, urls[0]], home)
    assert result.returncode == 3
    document = json.loads(result.stdout)
    ((first, second, server),) = document["routes"]
    assert (first["reached"], first["error"]) == (True, "")
    assert (second["reached"], second["error"]) == (False, f"{two.place} refused the connection")
    assert second["remedy"] == "check host and port, and that it is running"
    assert (server["reached"], server["error"]) == (False, "")
    assert document["servers"][0]["ok"]  # directly


def test_each_hop_of_a_usual_route_is_checked(urls, home, tmp_path):
    folder = tmp_path / "config" / "coget"
    folder.mkdir(parents=True)
    with depots(tmp_path, (*LOOPBACK, "--clients", "192.0.2.0/24")) as (depot,):
        (folder / "config.toml").write_text(f'via = "{depot.place}"\n')
        result = coget(["doctor", urls[0], "sftp://127.0.0.1/x"], home, XDG_CONFIG_HOME=str(tmp_path / "config"))
    assert result.returncode == 3
    assert re.search(rf"^{depot.place} +wrong +this depot does not serve your address", result.stdout, re.M)
    assert re.search(rf"^{depot.place} +ask the depot's admin to permit it", result.stdout, re.M)
    assert len(re.findall(r"^hop ", result.stdout, re.M)) == 1


def test_a_route_without_a_server_cannot_be_checked(home):
    result = coget(["doctor", "--via", "depot.example"], home)
    assert result.returncode == 2
    assert "coget doctor --via ROUTE URL" in result.stderr
