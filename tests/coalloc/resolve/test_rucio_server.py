"""Names of Rucio's own server: its answers, its datasets with files that are not available, and its traces."""

import hashlib
import json
import zlib

import pytest

from tests.support.coget import coget
from tests.support.nginx import Nginx
from tests.support.rucio import RucioServer

pytestmark = pytest.mark.long

CONTENT = {"x.nc": b"x" * 100_000, "/store/mc/y.nc": b"y" * 50_000, "gone.nc": b"z"}


def place(name: str) -> str:
    """Return the path of a file of the scope run1, as Rucio's algorithm `hash` chooses it."""
    value = hashlib.md5(f"run1:{name}".encode()).hexdigest()
    return f"run1/{value[:2]}/{value[2:4]}/{name}"


@pytest.fixture
def rucio(tmp_path):
    with RucioServer(tmp_path / "rucio") as rucio, Nginx(tmp_path / "web", tmp_path / "nginx") as web:
        for name, content in CONTENT.items():
            path = web.root / place(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        rucio.add_storage("SITE_A", web.port)
        described = [
            {"scope": "run1", "name": name, "bytes": len(content), "adler32": f"{zlib.adler32(content):08x}"}
            for name, content in CONTENT.items()
        ]
        named = [{"scope": each["scope"], "name": each["name"]} for each in described]
        lost = {"rse": "SITE_A", "files": [{"scope": "run1", "name": "gone.nc", "state": "U"}]}
        rucio.call(
            ("add_scope", {"account": "root", "scope": "run1"}),
            ("add_replicas", {"rse": "SITE_A", "files": described}),
            ("add_dataset", {"scope": "run1", "name": "set"}),
            ("attach_dids", {"scope": "run1", "name": "set", "dids": named}),
            ("update_replicas_states", lost),
        )  # fmt: skip
        yield rucio


def test_files_datasets_and_traces(rucio, tmp_path):
    def get(*words):
        return coget(["get", "--quiet", *words], tmp_path, RUCIO_CONFIG=str(rucio.config), SITE_NAME="HERE")

    got = get("rucio:run1:x.nc")
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "x.nc").read_bytes() == CONTENT["x.nc"]
    (trace,) = rucio.traces
    assert trace["eventType"] == "download"
    assert (trace["scope"], trace["filename"], trace["dataset"]) == ("run1", "x.nc", "")
    assert (trace["remoteSite"], trace["localSite"], trace["protocol"]) == ("SITE_A", "HERE", "http")
    assert (trace["clientState"], trace["filesize"], trace["account"]) == ("DONE", len(CONTENT["x.nc"]), "root")
    got = get("rucio:run1:/store/mc/y.nc", "-o", "y.nc")
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "y.nc").read_bytes() == CONTENT["/store/mc/y.nc"]

    got = get("-r", "rucio:run1:set", "-o", "all")
    assert got.returncode != 0, "a file of the dataset is not available"
    assert "gone.nc has no copy that coget can fetch: Rucio: it has no available replica" in got.stderr
    assert (tmp_path / "all/x.nc").read_bytes() == CONTENT["x.nc"]
    assert (tmp_path / "all/store/mc/y.nc").read_bytes() == CONTENT["/store/mc/y.nc"]
    assert {(each["filename"], each["dataset"]) for each in rucio.traces[2:]} == {
        ("x.nc", "set"),
        ("/store/mc/y.nc", "set"),
    }
    for name, said in {"gone.nc": "it has no available replica", "unknown": "404"}.items():
        got = get(f"rucio:run1:{name}")
        assert got.returncode != 0
        assert said in got.stderr
        assert not (tmp_path / name).exists()


def test_a_refused_login_says_what_to_check(rucio, tmp_path):
    text = rucio.config.read_text()
    rucio.config.write_text(text.replace("password = secret", "password = wrong"))
    got = coget(["rucio:run1:x.nc"], tmp_path, RUCIO_CONFIG=str(rucio.config))
    assert got.returncode != 0
    assert f"check account, username and password in {rucio.config}" in got.stderr
    (tmp_path / "token").write_text("expired-token")
    rucio.config.write_text(text.replace("[client]", f"[client]\nauth_token_file_path = {tmp_path / 'token'}"))
    got = coget(["--json", "--quiet", "rucio:run1:x.nc"], tmp_path, RUCIO_CONFIG=str(rucio.config))
    assert "log in with rucio whoami" in json.loads(got.stdout)["error"]["remedy"]
