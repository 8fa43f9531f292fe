"""Attacks of servers on collections: redirects to thieves, and answers that lie about range, size or content."""

import random
import re

import pytest

from coalloc import api
from coalloc.errors import CoallocError
from tests.support.effort import effort
from tests.support.seeds import tries
from tests.support.web import answer, ranges, web_server

STATUSES = ("301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent")
SECRETS = ("t0ken-1", "hush1234")
CONTENT = random.Random(9).randbytes(600_000)
DAV = (
    '<multistatus xmlns="DAV:"><response><href>/run/x</href><propstat><prop>'
    "<getcontentlength>600000</getcontentlength></prop><status>HTTP/1.1 200 OK</status>"
    "</propstat></response></multistatus>"
)


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch, grid):
    monkeypatch.setenv("COGET_HISTORY", str(tmp_path / "history.sqlite"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("SSL_CERT_FILE", str(grid.authority.certificate))
    monkeypatch.setenv("BEARER_TOKEN", "t0ken-1")


def places(thief, plain):
    """Return disguises of a thief's URL."""
    host = thief.url.partition("://")[2]
    return (
        f"{thief.url}/x",
        f"https://127.0.0.1@{host}/x",
        f"https://ann:hush1234@{host}/x",
        f"//{host}/x",
        f"https://localhost:{host.rpartition(':')[2]}/x",
        f"https:\\\\{host}/x",
        f"{plain.url}/x",
        f"{thief.url.replace('https', 'HTTPS')}/x?token=1#@127.0.0.1",
    )


def serves_all(heard):
    if heard.startswith("PROPFIND"):
        return answer("207 Multi", DAV.encode(), Content_Type="text/xml", Connection="close")
    return ranges(CONTENT)(heard)


async def redirected(chance, out, grid, disguises):
    """Collect from a server that redirects some requests; the file is right, or there is none."""
    status, place = chance.choice(STATUSES), chance.choice(disguises)
    moved = chance.choice(["HEAD", "GET", "PROPFIND", ""])

    def reply(heard):
        if heard.header("Authorization") is None:
            return answer("401 Unauthorized")
        return answer(status, Location=place) if heard.startswith(moved) else serves_all(heard)

    async with web_server(reply, grid) as server:
        login = chance.choice(["", "ann:hush1234@"])
        base = server.url.replace("https://", f"{chance.choice(['https', 'davs'])}://{login}")
        url = f"{base}/run/" if base.startswith("davs") and chance.random() < 0.7 else f"{base}/x"
        error = None
        try:
            await api.collect(api.CollectRequest((url,), str(out)))
        except CoallocError as caught:
            error = caught
        assert server.heard
    got = [path.read_bytes() for path in out.rglob("*") if path.is_file() and "coget" not in str(path)]
    assert got == ([CONTENT] if error is None else []), (status, place, moved, url, error)
    assert not any(secret in str(error) for secret in SECRETS)


@pytest.mark.seeded
@pytest.mark.long
async def test_no_redirect_of_a_server_carries_a_credential_elsewhere(tmp_path, grid):
    async with web_server(serves_all, grid) as thief, web_server(serves_all) as plain:
        for number, attempt in enumerate(tries(effort(8, 150))):
            with attempt as seed:
                await redirected(random.Random(seed), tmp_path / f"out{number}", grid, places(thief, plain))
        heard = [*thief.heard, *plain.heard]
        assert not any(secret in request for request in heard for secret in SECRETS), "a thief has it"
        assert {request.header("Authorization") for request in heard} <= {None}


def lies(chance):
    """Return a server's function that lies in one of many ways from some request on; none is retried for long."""
    kind = chance.choice(["shift", "long", "total", "flip", "no range", "multipart", "encoded", "tag"])
    after = chance.randrange(4)
    seen = [0]

    def reply(heard):
        seen[0] += heard.startswith("GET")
        said = ranges(CONTENT)(heard)
        if not heard.startswith("GET") or seen[0] <= after:
            return said
        head, _, body = said.partition(b"\r\n\r\n")
        if kind == "shift":
            head = re.sub(rb"bytes (\d+)-(\d+)", lambda m: b"bytes %d-%d" % (int(m[1]) + 1, int(m[2]) + 1), head)
        elif kind == "long":
            body += b"more"
        elif kind == "total":
            head = head.replace(b"/600000", b"/600001")
        elif kind == "flip":
            head = head.replace(
                b"HTTP/1.1 206 Part", b"HTTP/1.1 206 Part\r\nContent-Digest: md5=:AAAAAAAAAAAAAAAAAAAAAA==:"
            )
        elif kind == "no range":
            return answer("200 OK", CONTENT[::-1], ETag='"1"')
        elif kind == "multipart":
            return answer("206 Part", b"--x\r\n" + body, Content_Type="multipart/byteranges; boundary=x", ETag='"1"')
        elif kind == "encoded":
            head += b"\r\nContent-Encoding: gzip"
        else:
            head, body = head.replace(b'"1"', b'"2"'), body[::-1]
        return head + b"\r\n\r\n" + body

    return kind, reply


@pytest.mark.seeded
@pytest.mark.long
async def test_a_lying_server_makes_no_wrong_file(tmp_path):
    for number, attempt in enumerate(tries(effort(6, 150))):
        with attempt as seed:
            await lied_to(random.Random(seed), tmp_path / f"out{number}")


async def lied_to(chance, out):
    """Collect from a server that lies; the file is right, or there is none."""
    kind, reply = lies(chance)
    async with web_server(reply) as server:
        try:
            limit = chance.choice([None, 4_000_000])
            await api.collect(api.CollectRequest((f"{server.url}/x",), str(out), limit_rate=limit))
        except CoallocError:
            assert not (out / "x").exists(), kind
            return
    assert (out / "x").read_bytes() == CONTENT, kind
