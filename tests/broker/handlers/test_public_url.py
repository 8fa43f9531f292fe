"""Addresses in answers: from `--public-url` or the socket, never from a request's Host header."""

import re
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner, Result
from fastapi.routing import APIRoute, iter_route_contexts
from hypothesis import given
from hypothesis import strategies as st

from broker.cli import broker as command
from broker.dependencies.context import found_at
from broker.errors import BrokerError
from broker.handlers import others, own
from tests.support.broker import BrokerProcess, broker_in
from tests.support.browser import Page
from tests.support.effort import LONG
from tests.support.waiting import PATIENCE

EVIL = "evil.example"
PATHS = sorted(
    {
        re.sub(r"\{\w+(:path)?\}", "00000000-0000-4000-8000-000000000000", each.path)
        for each in (context.original_route for context in iter_route_contexts([*own, *others]))
        if isinstance(each, APIRoute) and "GET" in (each.methods or ())
    }
    | {"/openapi.json", "/nothing", "/ga4gh/drs/v1/objects/run1:x"}
)
TARGETS = ("{path}", "{path}/", "{path}//", f"//{EVIL}{{path}}", f"http://{EVIL}{{path}}", "{path}?to=//other.example/")
HEADERS = (
    f"Host: {EVIL}",
    f"Host: {EVIL}:80",
    f"Host: 127.0.0.1@{EVIL}",
    f"Host: localhost.{EVIL}",
    f"Host: localhost:1/{EVIL}",
    f"Host: 127.0.0.1:1\r\nHost: {EVIL}",
    f"Host: 127.0.0.1:{{port}}\r\nX-Forwarded-Host: {EVIL}\r\nX-Forwarded-Server: {EVIL}\r\nX-Host: {EVIL}",
    f"Host: 127.0.0.1:{{port}}\r\nForwarded: host={EVIL};proto=https\r\nX-Original-URL: http://{EVIL}/",
    f"Host: 127.0.0.1:{{port}}\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Prefix: //{EVIL}\r\nX-Script-Name: {EVIL}",
)


def _answer(url: str, target: str, headers: str, token: str) -> str:
    """Return the server's whole answer to a raw request."""
    parts = urlsplit(url)
    asked = f"GET {target} HTTP/1.1\r\n{headers.replace('{port}', str(parts.port))}\r\nConnection: close\r\n"
    asked += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
    with socket.create_connection((str(parts.hostname), parts.port), timeout=PATIENCE) as connection:
        connection.sendall(asked.encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer.decode(errors="replace")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with broker_in(tmp_path_factory.mktemp("hosts")) as running:
        client = running.client()
        endpoint = {"name": "dtn", "site": "X", "scheme": "https", "host": "dtn.example", "prefix": "/"}
        client.put("/broker/v1/sites/X", json={"name": "X"}).raise_for_status()
        client.put("/broker/v1/endpoints/dtn", json=endpoint).raise_for_status()
        line = '{"name": "run1:x", "size": 1, "checksums": {"md5": "%s"}, "replicas": [{"endpoint": "dtn"}]}' % (
            "a" * 32
        )
        client.post("/broker/v1/import?format=ndjson", content=line).raise_for_status()
        yield running


def test_many_paths_are_checked():
    assert len(PATHS) > 60
    assert {"/reports", "/.well-known/openid-configuration", "/ga4gh/drs/v1/service-info"} <= set(PATHS)


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(HEADERS)))
def test_no_answer_repeats_the_host_of_the_request(broker, number):
    """The short form asks a share of the paths with each of the headers."""
    headers = HEADERS[number]
    for path in PATHS if LONG else PATHS[number :: len(HEADERS)]:
        for target in TARGETS[: len(TARGETS) if path in ("/reports", "/reports/login", "/broker/v1/sites") else 2]:
            for token in ("", broker.token):
                asked = target.format(path=path)
                answer = _answer(broker.url, asked, headers, token)
                assert answer.startswith("HTTP/1.1 "), (asked, answer)
                assert EVIL not in answer.replace(asked, ""), (asked, answer)
                for place in re.findall(r"(?im)^location: (.*)$", answer):
                    assert re.match(r"/(?!/)", place), (asked, place)


def test_no_absolute_target_leads_anywhere_else(broker):
    for path in PATHS:
        answer = _answer(broker.url, f"http://{EVIL}{path}", f"Host: {EVIL}", broker.token)
        assert not re.search(r"(?im)^location:", answer), answer
        assert EVIL not in answer


def test_the_broker_names_its_own_address(broker):
    with httpx.Client(base_url=broker.url, headers={"Host": EVIL}, timeout=PATIENCE) as client:
        reply = client.get("/.well-known/openid-configuration").json()
        assert reply["issuer"] == broker.url
        assert all(each.startswith(broker.url) for name, each in reply.items() if name.endswith(("endpoint", "_uri")))
        assert client.get("/ga4gh/drs/v1/service-info").json()["organization"]["url"] == broker.url
    found = broker.client().get("/ga4gh/drs/v1/objects/run1:x", headers={"Host": EVIL})
    assert found.json()["self_uri"] == f"drs://{urlsplit(broker.url).netloc}/run1%3Ax"


def test_loopback_by_another_port_is_a_tunnel(broker):
    for host in ("localhost:9000", "127.0.0.1:9000", "[::1]:9000"):
        answer = httpx.get(f"{broker.url}/.well-known/openid-configuration", headers={"Host": host}, timeout=PATIENCE)
        assert answer.json()["issuer"] == f"http://{host}"


@pytest.mark.parametrize("host", [EVIL, "127.0.0.1:1"])
def test_a_login_stays_at_the_host_of_the_browser(broker, host):
    """Redirects are relative: the browser stays at the host that it used, also if the Host header names another one."""
    with httpx.Client(base_url=broker.url, headers={"Host": host}, timeout=PATIENCE) as client:
        where, seen = "/reports/tasks", []
        answer = client.get(where)
        while answer.is_redirect or (page := Page(answer)).fields.get("token") == "":
            if answer.is_redirect:
                seen.append(answer.headers["Location"])
                answer = client.get(seen[-1])
            else:
                form = {**page.fields, "token": broker.token, "decision": "allow"}
                answer = client.post(page.action, data=form)
        assert answer.status_code == 200, answer.text
        assert seen[-1] == where
        assert [urlsplit(each).path for each in seen] == [
            "/reports/login",
            "/v2/oauth2/authorize",
            "/reports/login/done",
            where,
        ]
        assert not [each for each in seen if urlsplit(each).netloc]


def test_a_public_address_is_the_only_one(tmp_path):
    public = "https://broker.example"
    with BrokerProcess(f"sqlite:///{tmp_path / 'b.sqlite'}", tmp_path, "", "--public-url", public) as broker:
        for headers in HEADERS:
            for path in ("/.well-known/openid-configuration", "/ga4gh/drs/v1/service-info", "/reports"):
                answer = _answer(broker.url, path, headers, broker.token)
                refused = answer.startswith("HTTP/1.1 400")  # two hosts
                assert refused or public in answer, answer
                assert EVIL not in answer
                assert urlsplit(broker.url).netloc not in answer


def _serve(public: str) -> Result:
    """Run `serve` with a public URL, and with a database that it refuses after it has checked the URL."""
    return CliRunner().invoke(command, ["serve", "--database", "other://x", "--public-url", public])


@pytest.mark.parametrize(
    "public",
    [
        "https://broker.example#part",
        "https://broker.example/#",
        "https://broker.example?",
        "https://broker.example/?a=b",
        "https://broker.example/path",
        "https://ann:secret@broker.example",
        "https://broker.example:port",
        "https://broker.example\n",
        "https://[broker",
        "https://",
        "broker.example",
        "ftp://broker.example",
    ],
)
def test_a_public_address_with_more_than_an_origin_is_refused(public):
    done = _serve(public)
    assert done.exit_code == 2
    assert "is not like https://broker.example" in done.output
    assert "secret" not in done.output


@pytest.mark.parametrize("public", ["https://broker.example", "https://broker.example/", "http://[::1]:8642", ""])
def test_a_public_address_is_an_origin(public):
    done = _serve(public)
    assert isinstance(done.exception, BrokerError)
    assert "database" in done.exception.message


HOSTS = st.one_of(
    st.text(max_size=30),
    st.from_regex(r"[a-z0-9.\-\[\]:@/?#\\%]{0,20}", fullmatch=True),
    st.sampled_from([EVIL, "192.0.2.1:8642", "localhost", "[::1]:5", "127.0.0.1:99999", "127.0.0.1:0"]),
)


@given(st.sampled_from(["http", "https"]), HOSTS, st.sampled_from(["192.0.2.1", "2001:db8::1", "127.0.0.1", "::1"]))
def test_an_origin_is_of_the_socket_or_of_loopback(scheme, host, address):
    found = urlsplit(found_at(scheme, host, (address, 8642)))
    assert found.scheme == scheme
    assert (found.path, found.query, found.fragment, found.username) == ("", "", "", None)
    if address in ("192.0.2.1", "2001:db8::1"):
        assert (found.hostname, found.port) == (address, 8642)
    else:
        assert found.hostname in ("localhost", "::1") or str(found.hostname).startswith("127.")
