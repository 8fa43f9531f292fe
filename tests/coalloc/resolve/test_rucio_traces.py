"""Traces for Rucio as `coget` sends them: what they say about a failure, and what an interrupt does to them."""

import asyncio
import json
import signal

import pytest

from tests.support.catalogues import CONTENT, MD5
from tests.support.coget import coget, coget_process
from tests.support.waiting import PATIENCE, until
from tests.support.web import answer, ranges, web_server


def metalink(url):
    text = f"<size>{len(CONTENT)}</size><hash type='md5'>{MD5}</hash><url>{url}/store/x</url>"
    space = "urn:ietf:params:xml:ns:metalink"
    return answer("200 OK", f"<metalink xmlns='{space}'><file name='x.nc'>{text}</file></metalink>".encode())


@pytest.fixture
async def rucio(tmp_path):
    """A server that is Rucio and storage, and answers no trace; and the variables that a user sets for it."""
    file = ranges(CONTENT)

    def reply(heard):
        replies = {
            "/auth/userpass": answer("200 OK", X_Rucio_Auth_Token="tok"),
            "/replicas/s/x.nc": metalink(server.url),
            "/dids/s/x.nc/files": answer("200 OK", b'{"scope": "s", "name": "x.nc"}'),
            "/traces/": b"",
        }
        return file(heard) if heard.path == "/store/x" else replies[heard.path]

    async with web_server(reply) as server:
        config = tmp_path / "rucio.cfg"
        login = "auth_type = userpass\naccount = ann\nusername = ann\npassword = pw"
        config.write_text(f"[client]\nrucio_host = {server.url}\n{login}\n")
        yield server, {"RUCIO_CONFIG": str(config), "COGET_HISTORY": "off"}


def traces(server):
    return [each for heard in server.heard if heard.path == "/traces/" for each in json.loads(heard.body)]


async def test_a_trace_has_no_text_of_an_error(rucio, tmp_path):
    server, environment = rucio
    words = ["rucio:s:x.nc", "-o", str(tmp_path / "x.nc")]
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # the limit would cut compiled modules
    got = await asyncio.to_thread(coget, words, tmp_path, ["prlimit", "--fsize=1000"], **environment)
    assert got.returncode == 6, got.stderr
    assert str(tmp_path) in got.stderr
    (trace,) = traces(server)
    assert (trace["clientState"], trace["stateReason"]) == ("FAILED", "local_disk")
    assert str(tmp_path) not in json.dumps(trace)
    assert server.url not in json.dumps(trace)


@pytest.mark.parametrize("words", [["rucio:s:x.nc"], ["-r", "rucio:s:x.nc", "-o", "."]])
async def test_an_interrupt_while_traces_are_sent_does_not_hide_the_file(rucio, tmp_path, words):
    server, environment = rucio
    with coget_process(["get", "--quiet", *words], tmp_path, **environment) as process:
        await until(lambda: traces(server))
        process.send_signal(signal.SIGINT)
        _, said = await asyncio.to_thread(process.communicate, timeout=PATIENCE)
    assert process.returncode == 0, said
    assert (tmp_path / "x.nc").read_bytes() == CONTENT
    (trace,) = traces(server)
    assert trace["clientState"] == "DONE"
