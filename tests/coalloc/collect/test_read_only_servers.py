"""Collections from web servers, WebDAV, S3 and federations: complete and correct or absent, and credentials at home."""

import asyncio
import itertools
import json
import os
from base64 import b64encode
from hashlib import sha256
from random import Random
from urllib.parse import quote

import pytest

from coalloc import api
from coalloc.collect.methods.adaptive import link_queue
from coalloc.collect.runtime import hop_queue
from coalloc.collect.runtime.read_only_server import ReadOnlyServer
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.s3.account import _session_of
from coalloc.errors import CoallocError, TargetExists, Unreachable, UsageError, VerificationError
from tests.support.apache import Apache
from tests.support.coget import coget, coget_process
from tests.support.federation import federation_server
from tests.support.fetching import options as engine_options
from tests.support.fetching import random_file
from tests.support.nginx import Nginx
from tests.support.s3 import Moto, use_s3
from tests.support.scripted import raw_server
from tests.support.waiting import PATIENCE, wait_until
from tests.support.web import Heard, answer, ranges, redirect, web_server

CONTENT = Random(5).randbytes(700_000)
WRONG = "crc32c=:AAAAAA==:"


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("BEARER_TOKEN", "BEARER_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


async def collect(tmp_path, *sources, **options):
    return await api.collect(api.CollectRequest(sources, str(tmp_path / "out"), **options))


async def failure(tmp_path, *sources, **options):
    with pytest.raises(CoallocError) as caught:
        await collect(tmp_path, *sources, **options)
    assert caught.value.remedy
    return caught.value


def found(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def state(path):
    """Return what changes when a file is replaced or written, but not when it is read."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


@pytest.fixture
def s3(monkeypatch):
    with Moto() as server:
        use_s3(monkeypatch, server.url)
        _session_of.cache_clear()
        server.client().create_bucket(Bucket="runs")
        yield server


async def test_all_protocols_in_one_job(start_gridftp, s3, grid, monkeypatch, tmp_path):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    roots = {name: tmp_path / name for name in ("web", "dav", "ftp", "origin")}
    for root in roots.values():
        (root / "run").mkdir(parents=True)
    expected = {
        "deep/a b%41#é": random_file(roots["dav"] / "run" / "x", 0),
        "page.bin": random_file(roots["web"] / "run" / "page.bin", 400_000),
        "one": random_file(roots["web"] / "one", 1),
        "ftp.bin": random_file(roots["ftp"] / "run" / "ftp.bin", 300_000),
        "ns.bin": random_file(roots["origin"] / "ns.bin", 200_000),
        "key 1%41": CONTENT,
        "sub/key+2?": b"",
        "presigned": CONTENT[:1000],
    }
    (roots["dav"] / "run" / "x").unlink()
    (roots["dav"] / "run" / "deep").mkdir()
    expected["deep/a b%41#é"] = random_file(roots["dav"] / "run" / "deep" / "a b%41#é", 900_000)
    for key in ("key 1%41", "sub/key+2?"):
        s3.client().put_object(Bucket="runs", Key=f"2026/{key}", Body=expected[key])
    s3.client().put_object(Bucket="runs", Key="other", Body=b"not below")
    s3.client().put_object(Bucket="runs", Key="presigned", Body=expected["presigned"])
    signed = s3.client().generate_presigned_url("get_object", {"Bucket": "runs", "Key": "presigned"})
    secure = [grid.localhost.certificate, grid.localhost.key]
    with (
        Nginx(roots["web"], tmp_path / "n", more="autoindex on;") as web,
        Apache(roots["dav"], tmp_path / "d") as dav,
        Nginx(roots["origin"], tmp_path / "o", certificate=secure) as cache,
        federation_server(grid.localhost) as federation,
    ):
        federation.objects, federation.servers = {"/ns.bin"}, [cache.url("").rstrip("/")]
        ftp = start_gridftp(roots["ftp"])
        pelican = f"pelican://{federation.host}/ns.bin"
        sources = (
            web.url("run/"),
            web.url("one"),
            dav.url("run/"),
            "s3://runs/2026/",
            signed,
            f"{ftp.url('run')}/",
            pelican,
        )
        report = await collect(tmp_path, *sources)
        assert found(tmp_path / "out") == expected
        assert {file.outcome for file in report.files} == {"collected"}
        assert all(file.verified for file in report.files if file.name in ("key 1%41", "ftp.bin"))
        again = await collect(tmp_path, *sources)
        assert {file.outcome for file in again.files if file.size} == {"there"}
        assert found(tmp_path / "out") == expected


async def test_only_gridftp_servers_receive_and_relay(gridftp_server, tmp_path):
    async with web_server(ranges(CONTENT)) as web:
        with pytest.raises(UsageError, match="no other server can fetch it"):
            await api.collect(api.CollectRequest((f"{web.url}/x",), gridftp_server.url("out")))
        with pytest.raises(UsageError, match="GridFTP server"):
            await collect(tmp_path, f"{web.url}/x", via=(f"{web.url}/lent",))
        with pytest.raises(UsageError, match="limit-rate"):
            await api.collect(api.CollectRequest((f"{web.url}/x",), gridftp_server.url("out"), limit_rate=1))
    assert not web.heard


async def test_a_token_goes_to_the_users_own_server_only(tmp_path, grid, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")
    async with web_server(ranges(CONTENT), grid) as thief:

        def guarded(heard):
            if heard.header("Authorization") != "Bearer t0ken-1":
                return answer("401 Unauthorized")
            return ranges(CONTENT)(heard) if heard.path == "/mine" else redirect(f"{thief.url}/away")

        async with web_server(guarded, grid) as server:
            report = await collect(tmp_path, f"{server.url}/mine", f"{server.url}/away")
            document = tmp_path / "named.meta4"
            document.write_text(
                '<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="named">'
                f"<url>{thief.url}/named</url></file></metalink>"
            )
            await collect(tmp_path, str(document))
        assert thief.heard
        assert set(thief.all("Authorization")) == {None}
    assert found(tmp_path / "out") == dict.fromkeys(("mine", "away", "named"), CONTENT)
    records = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"t0ken-1" not in records + repr(report).encode()


@pytest.mark.parametrize("late", [False, True])
async def test_a_token_that_expires_in_the_middle(tmp_path, grid, monkeypatch, late):
    """The new token is in the file at once, or only after some refusals."""
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    file = tmp_path / "token"
    file.write_text("t0ken-1")
    file.chmod(0o600)
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(file))
    valid, refused = ["t0ken-1"], []

    def serve(heard):
        if heard.startswith("GET") and valid == ["t0ken-1"]:
            valid[:] = ["t0ken-2"]
            if not late:
                file.write_text("t0ken-2")
        if heard.header("Authorization") != f"Bearer {valid[0]}":
            refused.append(heard)
            if len(refused) == 5:
                file.write_text("t0ken-2")
            return answer("401 Unauthorized")
        return ranges(CONTENT)(heard)

    async with web_server(serve, grid) as web, asyncio.timeout(PATIENCE):
        await collect(tmp_path, f"{web.url}/x", f"{web.url}/y")
    assert refused
    assert found(tmp_path / "out") == dict.fromkeys("xy", CONTENT)


@pytest.mark.parametrize("unranged", [False, True])
async def test_a_wrong_stated_checksum_is_never_accepted(tmp_path, unranged):
    def wrong(heard):
        if unranged:
            return answer("200 OK", CONTENT, Repr_Digest=WRONG)
        return ranges(CONTENT)(heard).replace(b"\r\n", f"\r\nRepr-Digest: {WRONG}\r\n".encode(), 1)

    async with web_server(wrong) as web:
        error = await failure(tmp_path, f"{web.url}/x")
    assert "differ" in str(error)
    assert not (tmp_path / "out" / "x").exists()


async def test_jobs_share_the_limit_of_connections(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_CONNECTIONS", "1")
    root = tmp_path / "root"
    root.mkdir()
    expected = {f"x{number}": random_file(root / f"x{number}", 2_000_000) for number in range(4)}
    # the server refuses every connection but one with status 503
    zones = "limit_conn_zone $binary_remote_addr zone=one:1m;"
    with Nginx(root, tmp_path / "n", more="limit_conn one 1; autoindex on;", zones=zones) as web:
        server = web.url("").split("/")[2]
        others = await Slots.from_environment().wait(server)
        jobs = [
            asyncio.create_task(api.collect(api.CollectRequest(tuple(map(web.url, expected)), str(tmp_path / out))))
            for out in ("a", "b")
        ]
        done, _ = await asyncio.wait(jobs, timeout=1)
        assert not done
        assert not list(tmp_path.glob("[ab]/*"))
        others.release()
        for report in await asyncio.gather(*jobs):
            assert {pair.error for pair in report.pairs} == {None}
    assert found(tmp_path / "a") == found(tmp_path / "b") == expected


def test_the_wait_for_a_connection_is_shown_once(tmp_path, monkeypatch):
    monkeypatch.setenv("COGET_CONNECTIONS", "1")
    root = tmp_path / "root"
    root.mkdir()
    content = random_file(root / "x", 1000)
    with Nginx(root, tmp_path / "n") as web:
        server = web.url("").split("/")[2]
        others = Slots.from_environment().take(server)
        words = ["collect", web.url("x"), "--to", "out"]
        with coget_process(words, tmp_path, COGET_CONNECTIONS="1", COGET_HISTORY=str(tmp_path / "h")) as job:
            said = next(text for text in job.stderr if "waiting" in text)
            others.release()
            said += job.communicate()[1]
    assert job.returncode == 0, said
    assert said.count(f"waiting for a free connection to {server}") == 1
    assert found(tmp_path / "out") == {"x": content}


def sent_bodies(log):
    """Return the bytes of each body that an nginx has sent, by its access log."""
    return [int(line.split('"')[2].split()[1]) for line in log.read_text().splitlines()]


@pytest.mark.parametrize("limit", [{}, {"limit_rate": 40_000_000}])
async def test_a_server_without_ranges(tmp_path, limit):
    root, log = tmp_path / "root", tmp_path / "log"
    root.mkdir()
    size = 15_000_000
    expected = {name: random_file(root / name, size) for name in ("x", "y")}
    with Nginx(root, tmp_path / "n", more=f"max_ranges 0; access_log {log};") as web:
        await collect(tmp_path, web.url("x"), web.url("y"), **limit)
    assert found(tmp_path / "out") == expected
    assert [sent for sent in sent_bodies(log) if sent == size] == [size, size]  # others only show size and version


async def test_a_long_wait_for_the_rate_limit_is_not_given_up(tmp_path, monkeypatch):
    for name, value in {"SILENCE": 4.0, "LONGEST": 4.0, "TRIES": 1}.items():
        monkeypatch.setattr(link_queue, name, value)
    root = tmp_path / "root"
    root.mkdir()
    expected = {"x": random_file(root / "x", 700_000)}
    with Nginx(root, tmp_path / "n", more="max_ranges 0;") as web:
        report = await collect(tmp_path, web.url("x"), limit_rate=100_000)
    assert report.seconds > 4
    assert found(tmp_path / "out") == expected


def nothing_there(heard):
    """Answer every request for a range by status 416."""
    return answer("416 No") if heard.header("Range") else ranges(CONTENT)(heard)


@pytest.mark.parametrize("method", ["adaptive", "one-by-one"])
async def test_others_go_on_without_a_file_that_its_server_does_not_send(tmp_path, method):
    async with web_server(nothing_there) as bad, web_server(ranges(CONTENT)) as good:
        error = await failure(
            tmp_path, f"{bad.url}/x", f"{good.url}/y", f"{good.url}/z", method=method, limit_rate=1_000_000
        )
        asked = len(bad.heard)
    assert f"{bad.url}/x: the server says 416" in str(error)
    assert asked < 20
    assert {name: found(tmp_path / "out").get(name) for name in "xyz"} == {"x": None, "y": CONTENT, "z": CONTENT}


@pytest.mark.parametrize("method", ["adaptive", "one-by-one"])
async def test_many_files_that_a_server_does_not_send_cost_none_of_its_others(tmp_path, method):
    def serve(heard):
        return ranges(CONTENT)(heard) if "good" in heard.path else nothing_there(heard)

    names = [f"bad{number}" for number in range(60)] + ["good1", "good2"]
    async with web_server(serve) as web:
        await failure(tmp_path, *(f"{web.url}/{name}" for name in names), method=method)
    assert {name: found(tmp_path / "out").get(name) for name in names[-3:]} == {
        "bad59": None,
        "good1": CONTENT,
        "good2": CONTENT,
    }


async def test_another_replica_replaces_one_that_is_not_sent(tmp_path):
    async with web_server(nothing_there) as bad, web_server(ranges(CONTENT)) as good:
        urls = "".join(f"<url>{server.url}/x</url>" for server in (bad, good))
        digest = f'<hash type="sha-256">{sha256(CONTENT).hexdigest()}</hash>'
        document = tmp_path / "x.meta4"
        document.write_text(
            f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x">{digest}{urls}</file></metalink>'
        )
        await collect(tmp_path, str(document))
    assert found(tmp_path / "out") == {"x": CONTENT}


async def test_a_server_that_sends_one_byte_at_a_time_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(link_queue, "TRIES", 2)
    monkeypatch.setattr(hop_queue, "TRIES", 2)

    async def serve(reader, writer):
        head = Heard((await reader.readuntil(b"\r\n\r\n")).decode())
        whole, _, body = ranges(CONTENT)(head).partition(b"\r\n\r\n")
        writer.write(whole + b"\r\n\r\n" + (b"" if head.startswith("HEAD") else body[:1]))
        writer.close()

    async with raw_server(serve) as port, asyncio.timeout(PATIENCE):
        error = await failure(tmp_path, f"http://127.0.0.1:{port}/x")
    assert f"http://127.0.0.1:{port}/x: the " in str(error)  # data ended, or connection was lost
    assert not (tmp_path / "out" / "x").exists()


@pytest.mark.parametrize("marked", [True, False])
async def test_a_file_that_changes_meanwhile_is_not_mixed(tmp_path, marked):
    versions = itertools.count()
    longer = CONTENT if marked else CONTENT + b"x"

    def changing(heard):
        late = next(versions) > 1
        said = ranges(bytes(reversed(longer)) if late else CONTENT)(heard)
        tag = b'"2"' if late else b'"1"'
        return said.replace(b'"1"', tag, 1) if marked else said.replace(b'ETag: "1"\r\n', b"", 1)

    async with web_server(changing) as web:
        await failure(tmp_path, f"{web.url}/x", limit_rate=500_000)
    assert not (tmp_path / "out" / "x").exists()


async def test_replicas_without_a_common_checksum_are_not_mixed(tmp_path):
    async with web_server(ranges(CONTENT)) as one, web_server(ranges(bytes(reversed(CONTENT)))) as other:
        document = tmp_path / "x.meta4"
        urls = "".join(f"<url>{server.url}/x</url>" for server in (one, other))
        document.write_text(
            f'<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="x">{urls}</file></metalink>'
        )
        await collect(tmp_path, str(document))
    assert found(tmp_path / "out") == {"x": CONTENT}


async def test_the_rate_is_limited(tmp_path):
    async with web_server(ranges(CONTENT)) as web:
        report = await collect(tmp_path, f"{web.url}/x", limit_rate=500_000)
    assert report.seconds > 0.5 * len(CONTENT) / 500_000
    assert found(tmp_path / "out") == {"x": CONTENT}


def test_a_killed_job_is_continued(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    content = random_file(root / "x", 4_000_000)
    environment, log = {"COGET_HISTORY": str(tmp_path / "h")}, tmp_path / "log"
    with Nginx(root, tmp_path / "n", more=f"access_log {log};") as server:
        words = ["collect", server.url("x"), "--to", "out"]
        with coget_process([*words, "--limit-rate", "2 MB/s"], tmp_path, **environment) as job:
            wait_until(lambda: any(path.stat().st_blocks * 512 > 1_500_000 for path in tmp_path.glob("out/.x*/data")))
            job.kill()
        assert not (tmp_path / "out" / "x").exists()
        before = sum(sent_bodies(log))
        done = coget([*words, "--json"], tmp_path, **environment)
        again = sum(sent_bodies(log)) - before
    assert done.returncode == 0, done.stderr
    assert found(tmp_path / "out") == {"x": content}
    assert 0 < again < len(content)
    report = json.loads(done.stdout)
    (pair,) = report["pairs"]
    assert report["there_bytes"] > 0
    assert pair["bytes"] == len(content) - report["there_bytes"]
    assert sum(part["bytes"] for part in pair["stretches"]) == pair["bytes"]


async def test_a_file_of_unknown_content_is_fetched_and_compared(tmp_path):
    root, out = tmp_path / "root", tmp_path / "out"
    root.mkdir()
    content = random_file(root / "x", 300_000)
    with Nginx(root, tmp_path / "n", more='autoindex on; etag off; add_header Last-Modified "";') as web:
        await collect(tmp_path, web.url(""))
        was = state(out / "x")
        (again,) = (await collect(tmp_path, web.url(""))).files
        assert again.outcome == "there"
        assert state(out / "x") == was
        assert [path.name for path in out.rglob("*")] == ["x"]
        (out / "x").write_bytes(bytes(len(content)))
        error = await failure(tmp_path, web.url(""))
        assert isinstance(error, TargetExists)
        assert (out / "x").read_bytes() == bytes(len(content))
        await collect(tmp_path, web.url(""), overwrite=True)
        assert found(out) == {"x": content}
        (out / "x").write_bytes(b"short")
        with pytest.raises(TargetExists, match="not known to be the same"):
            await collect(tmp_path, web.url(""))


def test_directories_that_look_like_a_loop_are_named(tmp_path):
    folder = tmp_path / "root"
    for number in range(5):
        folder.mkdir()
        (folder / "x").write_bytes(bytes([number]))
        folder /= "r"
    for path in (tmp_path / "root").rglob("*"):
        os.utime(path, (1e9, 1e9))
    with Nginx(tmp_path / "root", tmp_path / "n", more="autoindex on;") as server:
        done = coget(["collect", "--json", "--quiet", server.url(""), "--to", "out"], tmp_path)
        loop = server.url("r/")
    assert done.returncode == 0, done.stderr
    assert f"{loop} was left out: its listing is the same as that of a directory above it" in done.stderr
    assert json.loads(done.stdout)["loops"] == [loop]
    assert found(tmp_path / "out") == {"x": b"\0"}


async def test_the_checksum_in_a_listing_is_compared(tmp_path):
    def entry(path, properties):
        return f"<d:response><d:href>{path}</d:href><d:propstat><d:prop>{properties}</d:prop></d:propstat></d:response>"

    checksum = '<o:checksums xmlns:o="http://owncloud.org/ns"><o:checksum>ADLER32:00000001</o:checksum></o:checksums>'
    entries = entry("/run/", "<d:resourcetype><d:collection/></d:resourcetype>") + entry(
        "/run/x", f"<d:resourcetype/><d:getcontentlength>{len(CONTENT)}</d:getcontentlength>{checksum}"
    )
    listing = f'<d:multistatus xmlns:d="DAV:">{entries}</d:multistatus>'.encode()

    def serve(heard):
        if not heard.startswith("PROPFIND"):
            return ranges(CONTENT)(heard)
        listed = heard.path.endswith("/")
        return answer("207 Multi", listing, Content_Type="text/xml") if listed else answer("405 Not Allowed")

    async with web_server(serve) as web:
        error = await failure(tmp_path, f"{web.url.replace('http', 'dav')}/run/")
    assert isinstance(error, VerificationError)
    assert not (tmp_path / "out" / "x").exists()


async def test_a_stated_checksum_is_known_without_another_request():
    digest = sha256(CONTENT)

    def stating(heard):
        stated = f"\r\nRepr-Digest: sha-256=:{b64encode(digest.digest()).decode()}:\r\n"
        return ranges(CONTENT)(heard).replace(b"\r\n", stated.encode(), 1)

    async with web_server(stating) as web:
        server = ReadOnlyServer(web.url, f"{web.url}/", engine_options())
        server.add("/x", f"{web.url}/x", engine_options())
        size = (await server.stat("/x")).size
        await server.close()
        requests = len(web.heard)
        assert await server.checksum("/x", "sha256", 0, size) == digest.hexdigest()
        assert await server.checksum("/x", "sha256", 0, size - 1) is None
        assert await server.checksum("/x", "adler32", 0, size) is None
        assert len(web.heard) == requests


async def test_an_ftp_server_that_is_gone_states_no_checksum():
    url = "ftps://127.0.0.1:1"
    server = ReadOnlyServer(url, f"{url}/", engine_options())
    server.add("/x", f"{url}/x", engine_options())
    with pytest.raises(Unreachable):
        await server.stat("/x")
    assert await server.checksum("/x", "adler32", 0, 9) is None
    await server.close()


HOSTILE = ["../out2", "/etc/x", "a/../../x", "line\nfeed", "esc\x1b[31m", "nul\\", "x" * 300, ".x.coget-1/data"]


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_name_in_a_listing_is_refused(tmp_path, monkeypatch, name):
    page = (
        f"<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>run/{quote(name)}</Key><Size>9</Size>"
        "</Contents></ListBucketResult>"
    ).encode()
    async with web_server(
        lambda heard: answer("200 OK", page) if "list-type" in heard.path else ranges(CONTENT)(heard)
    ) as web:
        use_s3(monkeypatch, web.url)
        _session_of.cache_clear()
        if name == ".x.coget-1/data":
            await collect(tmp_path, "s3://runs/run/")
            assert found(tmp_path / "out") == {name: CONTENT}
            return
        error = await failure(tmp_path, "s3://runs/run/")
    assert "\x1b" not in str(error)
    assert "\n" not in str(error)
    assert not list((tmp_path).rglob("out*/**/*"))
