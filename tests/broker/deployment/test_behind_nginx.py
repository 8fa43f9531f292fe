"""The broker behind a real nginx with TLS, with exactly the configuration of the how-to."""

import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.support.broker import BrokerProcess
from tests.support.browser import Page
from tests.support.gsi import Authority
from tests.support.listening import reserved
from tests.support.nginx import Nginx
from tests.support.waiting import PATIENCE

HOWTO = Path(__file__).parents[3] / "docs" / "howto" / "broker.md"
EVIL = "evil.example"
TRUSTED = '[proxy]\ntrusted = ["127.0.0.1"]\n'


def _block(port: int, brokers: str, keys: tuple[Path, Path]) -> str:
    """Return the nginx block of the how-to with local ports and files; each must occur once."""
    (block,) = re.findall(r"^```nginx\n(.*?)^```$", HOWTO.read_text(), re.S | re.M)
    for pattern, here in (
        (r"listen 443 ssl;", f"listen 127.0.0.1:{port} ssl;"),
        (r"server 127.0.0.1:8642; server 127.0.0.1:8643;", f"server {brokers};"),
        (r"ssl_certificate \S+;", f"ssl_certificate {keys[0]};"),
        (r"ssl_certificate_key \S+;", f"ssl_certificate_key {keys[1]};"),
    ):
        block, count = re.subn(pattern, here, block)
        assert count == 1, pattern
    return str(block)


class Place(NamedTuple):
    """A broker and its public address."""

    broker: BrokerProcess
    url: str
    context: ssl.SSLContext

    def client(self, address: str = "127.0.0.1", **headers: str) -> httpx.Client:
        """Return a client that connects from this address of the loopback network."""
        transport = httpx.HTTPTransport(verify=self.context, local_address=address)
        return httpx.Client(transport=transport, base_url=self.url, headers=headers, timeout=PATIENCE)

    def wrong(self, address: str, times: int = 1, header: str = "X-Forwarded-For") -> int:
        """Return the last status after this many wrong tokens from there, each with another address in a header."""
        with self.client(address, Authorization="Bearer cogetb_wrong") as client:
            for i in range(times):
                status = client.get("/broker/v1/whoami", headers={header: f"192.0.2.{i}"}).status_code
        return status

    def warnings(self) -> list[dict]:
        """Return the warnings about proxies in the log."""
        return [
            each for each in self.broker.events() if "forwarded headers of an untrusted proxy" in str(each.get("event"))
        ]


Start = Callable[..., Place]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Return a function that starts a broker behind nginx with these settings and options."""
    with _places(tmp_path_factory) as begin:
        yield begin


@pytest.fixture(scope="module")
def unnamed(start: Start) -> Place:
    """A broker behind nginx without `--public-url`."""
    return start(TRUSTED, False)


@contextmanager
def _places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    authority = Authority(tmp_path_factory.mktemp("ca"))
    context = ssl.create_default_context(cafile=str(authority.authority.certificate))
    with ExitStack() as stack:

        def begin(config: str, public: bool) -> Place:
            folder = tmp_path_factory.mktemp("behind")
            port = stack.enter_context(reserved("127.0.0.1")).getsockname()[1]
            file, url = folder / "broker.toml", f"https://localhost:{port}"
            file.write_text(config)
            words = ["--config", str(file), *(["--public-url", url] if public else [])]
            broker = stack.enter_context(BrokerProcess(f"sqlite:///{folder / 'b.sqlite'}", folder, "", *words))
            keys = (authority.localhost.certificate, authority.localhost.key)
            block = _block(port, broker.url.removeprefix("http://"), keys)
            stack.enter_context(Nginx(folder / "root", folder / "run", zones=block))
            return Place(broker, url, context)

        yield begin


@pytest.fixture(scope="module")
def place(start: Start) -> Place:
    """A broker behind nginx as in the how-to, with `[proxy]` and `--public-url`."""
    return start(TRUSTED, True)


def _log_in(place: Place, **headers: str) -> list[str]:
    """Log in with a browser; return all cookies, and the addresses of all redirects."""
    seen = []
    with place.client(**headers) as client:
        answer = client.get("/reports/tasks")
        for _ in range(10):
            seen += [f"cookie {each}" for each in answer.headers.get_list("Set-Cookie")]
            if answer.is_redirect:
                seen.append(f"location {answer.headers['Location']}")
                answer = client.get(answer.headers["Location"])
            elif "token" in (page := Page(answer)).fields:
                answer = client.post(
                    page.action, data={**page.fields, "token": place.broker.token, "decision": "allow"}
                )
        assert (answer.status_code, answer.url.path) == (200, "/reports/tasks")
    return seen


@pytest.mark.parametrize("public", [True, False])
def test_cookies_are_secure(place, unnamed, public):
    """Cookies are secure without `--public-url`, too, by X-Forwarded-Proto."""
    headers = _log_in(place if public else unnamed)
    cookies = [each for each in headers if each.startswith("cookie ")]
    assert {each.partition("=")[0] for each in cookies} >= {"cookie __Host-coget-session", "cookie __Host-coget-login"}
    for each in cookies:
        assert re.search("; Secure(;|$)", each), each
        assert re.search("; HttpOnly(;|$)", each), each


def test_wrong_tokens_delay_only_their_sender(place):
    for i, header in enumerate(("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Client-IP")):
        attacker = f"127.0.1.{i + 1}"
        assert place.wrong(attacker, 31, header) == 429, header
        assert place.wrong(attacker, 1, header) == 429
    assert place.wrong("127.0.0.3") == 401
    with place.client("127.0.1.1", Authorization=f"Bearer {place.broker.token}") as client:
        assert client.get("/broker/v1/whoami").status_code == 200


def test_forwarded_addresses_from_outside_the_proxy_are_ignored(place):
    around = place._replace(url=place.broker.url)
    assert around.wrong("127.0.0.4", 31) == 429
    assert around.wrong("127.0.0.5") == 401


def test_the_log_warns_once_of_each_untrusted_proxy(start):
    place = start(TRUSTED, True)
    around = place._replace(url=place.broker.url)
    place.wrong("127.0.0.2", 5)
    assert place.warnings() == []
    for header in ("X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded"):
        around.wrong("127.0.0.6", 3, header)
        around.wrong("127.0.0.7", 3, header)
    assert [each["address"] for each in place.warnings()] == ["127.0.0.6", "127.0.0.7"]
    around.wrong("127.0.0.8", 3, "Via")
    assert len(place.warnings()) == 2


def test_the_log_warns_of_a_proxy_missing_from_the_config(start):
    place = start("", True)
    assert place.wrong("127.0.0.2", 31) == 429
    assert place.wrong("127.0.0.3") == 429
    (warning,) = place.warnings()
    assert (warning["level"], warning["address"]) == ("warning", "127.0.0.1")
    assert '[proxy] and trusted = ["127.0.0.1"]' in warning["remedy"]
    assert place.broker.token not in place.broker.log()


def _raw(place: Place, target: str, headers: str) -> str:
    """Return nginx's answer to a raw request."""
    host, port = place.url.removeprefix("https://").split(":")
    with (
        socket.create_connection((host, int(port)), timeout=PATIENCE) as plain,
        place.context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(f"GET {target} HTTP/1.1\r\n{headers}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer.decode(errors="replace")


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(
    "headers",
    [
        f"Host: {EVIL}",
        f"Host: {EVIL}:443\r\nX-Forwarded-Host: {EVIL}",
        f"Host: localhost\r\nX-Forwarded-Host: {EVIL}\r\nForwarded: host={EVIL}",
        f"Host: localhost\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Port: 80\r\nX-Forwarded-Prefix: //{EVIL}",
    ],
)
def test_no_answer_repeats_the_host_of_the_request(place, unnamed, public, headers):
    here = place if public else unnamed
    for path in ("/reports", "/reports/", "/reports/login", "/v2/web/login", "/broker/v1/sites", "/openapi.json"):
        for target in (path, f"http://{EVIL}{path}", f"https://{EVIL}:1{path}"):
            answer = _raw(here, target, headers)
            assert answer.startswith("HTTP/1.1 "), answer
            assert EVIL not in answer
            for location in re.findall(r"(?im)^location: (.*)$", answer):
                assert location.startswith((f"{here.url}/", "/reports", "/v2/")), location
    known = _raw(here, "/.well-known/openid-configuration", headers)
    issuer = here.url if public else here.broker.url.replace("http:", "https:")
    assert f'"issuer":"{issuer}"' in known


def test_a_login_with_another_host_stays_at_the_public_address(place):
    led = [each for each in _log_in(place, Host=EVIL) if each.startswith("location ")]
    assert led[0].startswith(f"location {place.url}/reports/login?")
    assert all(each.startswith((f"location {place.url}/", "location /")) for each in led)
