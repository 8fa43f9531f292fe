"""Names in catalogues as users give them to the `coget` process: a real broker as DRS server, Rucio, and collect."""

import asyncio
import hashlib
import json
from urllib.parse import quote, urlsplit

import pytest

from tests.support.broker import broker_in
from tests.support.catalogues import CONTENT, ID, MD5, SEARCH, SHA256
from tests.support.coget import coget
from tests.support.nginx import Nginx
from tests.support.web import answer, ranges, web_server

NAME = "run1:2024/a.root"


def configure(home, text):
    (home / ".config/coget").mkdir(parents=True, exist_ok=True)
    (home / ".config/coget/config.toml").write_text(text)


@pytest.fixture
def broker(tmp_path):
    """A broker that knows CONTENT at two servers, of which one is down."""
    folder = tmp_path / "broker"
    (folder / "root/2024").mkdir(parents=True)
    (folder / "root/2024/a.root").write_bytes(CONTENT)
    with Nginx(folder / "root", folder / "run") as nginx, broker_in(folder) as broker:
        client = broker.client()
        client.put("/broker/v1/sites/X", json={"name": "X"}).raise_for_status()
        for name, port in (("gone", 9), ("here", nginx.port)):
            place = {"site": "X", "scheme": "http", "host": "127.0.0.1", "port": port}
            client.put(f"/broker/v1/endpoints/{name}", json={"name": name, **place}).raise_for_status()
            digest = {"sha256": hashlib.sha256(CONTENT).hexdigest()}
            known = {"name": NAME, "size": len(CONTENT), "checksums": digest, "replicas": [{"endpoint": name}]}
            client.post("/broker/v1/import", json=known).raise_for_status()
        yield broker


def test_the_broker_is_a_drs_server_and_has_names_of_its_own(broker, tmp_path):
    host = urlsplit(broker.url).netloc
    configure(tmp_path, f'[names.drs]\n"{host}" = "{broker.url}/ga4gh/drs/v1"\n')
    refused = coget([f"drs://{host}/{NAME}"], tmp_path)
    assert refused.returncode != 0
    assert "401" in refused.stderr
    for name in (f"drs://{host}/{NAME}", f"drs://{host}/{quote(NAME, safe='')}"):
        got = coget(["--json", "--quiet", name], tmp_path, BEARER_TOKEN=broker.token)
        assert got.returncode == 0, got.stderr
        report = json.loads(got.stdout)
        assert report["checksum"]["value"] == SHA256
        assert len(report["sources"]) == 2
        assert (tmp_path / "a.root").read_bytes() == CONTENT
        (tmp_path / "a.root").unlink()
    got = coget([f"coget:{NAME}"], tmp_path, COGET_BROKER_TOKEN=broker.token, COGET_BROKER=broker.url)
    assert got.returncode == 0, got.stderr
    assert (tmp_path / "a.root").read_bytes() == CONTENT


async def test_rucio_names(tmp_path):
    file = ranges(CONTENT)

    def reply(heard):
        if heard.path == "/auth/userpass":
            known = heard.header("X-Rucio-Password") == "pw" and heard.header("X-Rucio-Account") == "ann"
            return answer("200 OK", X_Rucio_Auth_Token="tok-1") if known else answer("401 Unauthorized")
        if heard.path == "/replicas/user.ann/x.nc":
            return metalink(server.url) if heard.header("X-Rucio-Auth-Token") == "tok-1" else answer("401 No")
        if heard.path == "/dids/user.ann/x.nc/files":
            return answer("200 OK", b'{"scope": "user.ann", "name": "x.nc"}')
        if heard.path == "/traces/":
            return answer("201 Created")
        return file(heard) if heard.path.startswith("/store/") else answer("404 Not Found")

    async with web_server(reply) as server:
        config = tmp_path / "rucio.cfg"
        login = f"[client]\nrucio_host = {server.url}\nauth_type = userpass\naccount = ann\nusername = ann\npassword = "
        config.write_text(f"{login}pw\n")
        got = await asyncio.to_thread(coget, ["rucio:user.ann:x.nc"], tmp_path, RUCIO_CONFIG=str(config))
        assert got.returncode == 0, got.stderr
        assert (tmp_path / "x.nc").read_bytes() == CONTENT
        assert {heard.header("X-Rucio-Auth-Token") for heard in server.heard if heard.path.startswith("/store/")} == {
            None
        }
        config.write_text(f"{login}wrong-pw\n")
        refused = await asyncio.to_thread(coget, ["rucio:user.ann:x.nc"], tmp_path, RUCIO_CONFIG=str(config))
        assert refused.returncode != 0
        assert "401" in refused.stderr
        assert "wrong-pw" not in refused.stderr


def metalink(url):
    copies = "".join(f"<url>{url}/store/{i}</url>" for i in range(2))
    return answer(
        "200 OK",
        f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x.nc"><size>{len(CONTENT)}</size>'
        f'<hash type="md5">{MD5}</hash>{copies}</file></metalink>'.encode(),
    )


def esgf_of(url, *docs):
    return {
        f"{SEARCH}Dataset&instance_id={ID}": {"response": {"numFound": 1, "docs": [{"id": "d"}]}},
        f"{SEARCH}File&dataset_id=d": {"response": {"numFound": len(docs), "docs": docs[:2]}},
        f"{SEARCH.replace('offset=0', 'offset=2')}File&dataset_id=d": {
            "response": {"numFound": len(docs), "docs": docs[2:]}
        },
    }


def test_collect_takes_the_copies_at_gridftp_servers(catalogue, home, start_gridftp, tmp_path):
    server = start_gridftp(tmp_path / "a")
    docs = []
    for number in range(3):
        (server.root / f"{number}.nc").write_bytes(CONTENT)
        urls = [f"{server.url(f'{number}.nc')}|application/gridftp|GridFTP", f"{catalogue.url}/x|a|HTTPServer"]
        docs.append({"id": str(number), "title": f"{number}.nc", "size": len(CONTENT), "url": urls,
                     "checksum": [SHA256], "checksum_type": ["SHA256"]})  # fmt: skip
    catalogue(esgf_of(catalogue.url, *docs))
    environment = {"XDG_CONFIG_HOME": str(home / "config")}
    got = coget(["collect", f"esgf:{ID}", "--to", "all"], tmp_path, **environment)
    assert got.returncode == 0, got.stderr
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"0.nc", "1.nc", "2.nc"}
    assert {path.read_bytes() for path in (tmp_path / "all").iterdir()} == {CONTENT}


def test_collect_takes_the_copies_of_web_servers_if_they_have_the_right_size(catalogue, home, tmp_path):
    docs = [{"id": "1", "title": "x.nc", "size": 5, "url": [f"{catalogue.url}/x|a|HTTPServer"]}]
    catalogue(esgf_of(catalogue.url, *docs))
    got = coget(["collect", f"esgf:{ID}", "--to", "all"], tmp_path, XDG_CONFIG_HOME=str(home / "config"))
    assert got.returncode != 0
    assert "x.nc has no usable replica" in got.stderr
    assert "bytes, not 5" in got.stderr
    catalogue({"/drs/objects/1": {"name": "y.nc", "access_methods": [{"access_url": {"url": f"{catalogue.url}/x"}}]}})
    got = coget(["collect", "drs://drs.example/1", "--to", "all"], tmp_path, XDG_CONFIG_HOME=str(home / "config"))
    assert got.returncode == 0, got.stderr
    assert {path.name: path.read_bytes() for path in (tmp_path / "all").iterdir()} == {"y.nc": CONTENT}


def test_a_file_without_checksum_is_fetched_but_not_verified(catalogue, home, tmp_path):
    catalogue({"/drs/objects/1": {"name": "y.nc", "access_methods": [{"access_url": {"url": f"{catalogue.url}/x"}}]}})
    environment = {"XDG_CONFIG_HOME": str(home / "config")}
    got = coget(["--json", "--quiet", "drs://drs.example/1"], tmp_path, **environment)
    assert got.returncode == 0, got.stderr
    assert json.loads(got.stdout)["checksum"]["basis"] != "given"
    assert not json.loads(got.stdout)["checksum"]["verified"]
    assert (tmp_path / "y.nc").read_bytes() == CONTENT
