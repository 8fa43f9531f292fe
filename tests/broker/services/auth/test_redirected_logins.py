"""Logins at a real OpenID provider, to which the broker redirects users."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.models.identities import identity
from tests.support.broker import BrokerProcess
from tests.support.browser import Browser, Page
from tests.support.globus import Globus
from tests.support.provider import Provider
from tests.support.waiting import PATIENCE

CONFIG = """
[[issuer]]
url = "{url}"
audience = ["coget-broker"]
roles = {{ "/lab" = "reader", "/lab/production" = "transfer" }}

[login]
issuer = "{url}"
client_id = "coget"
client_secret = "the broker's own: s3cret/+"
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    started = Provider(600)
    yield started
    started.close()


def _configure(folder: Path, url: str) -> None:
    (folder / "broker.toml").write_text(CONFIG.format(url=url))
    (folder / "broker.toml").chmod(0o600)


@pytest.fixture
def broker(provider: Provider, empty_database: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    _configure(tmp_path, provider.url)
    with BrokerProcess(empty_database, tmp_path, "", "--config", "broker.toml") as running:
        yield running
        assert "s3cret" not in running.log()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    opened = Browser(tmp_path / "cookies.json")
    yield opened
    opened.close()


def _asked(broker: BrokerProcess) -> str:
    """Return the login URL of a program whose user copies the code by hand."""
    made = httpx.post(f"{broker.url}/v2/api/clients", json={"client": {"name": "a program"}}, timeout=PATIENCE).json()
    asked = {"client_id": made["client"]["id"], "redirect_uri": f"{broker.url}/v2/web/auth-code"}
    return f"{broker.url}/v2/oauth2/authorize?" + urlencode({**asked, "response_type": "code"})


def _there(browser: Browser, page: Page, subject: str) -> Page:
    """Log in at the provider; return the redirect back."""
    return Page(browser.client.post(browser.open(page.links[0]).url, data={"sub": subject}))


def test_the_provider_identifies_the_user_and_the_cli_is_logged_in(broker, browser, provider, tmp_path):
    home = Globus(tmp_path / "home", broker.url)
    output = home.cli("login", "--no-local-server", status=1).stdout
    link = next(line for line in output.splitlines() if line.startswith("http"))
    page = _there(browser, browser.open(link), "ann")
    assert "Continue as ann@127.0.0.1" in page.text
    shown = browser.send(page)
    home.cli("login", "--no-local-server", stdin=shown.words["code"] + "\n")
    assert home.cli("whoami").stdout == "ann@127.0.0.1\n"
    assert home.json("whoami")["sub"] == str(identity(f"ann@{provider.url}"))
    assert home.json("api", "transfer", "GET", "/broker/v1/whoami")["role"] == "transfer"


def test_a_login_without_a_role_is_refused(broker, browser, provider):
    page = _there(browser, browser.open(_asked(broker)), "bob")
    assert (page.status, f"bob@{provider.url} has no role here" in page.text) == (403, True)


def test_losing_all_roles_ends_earlier_logins(broker, browser, provider, tmp_path):
    member = {"groups": ["/lab"]}
    assert httpx.put(f"{provider.url}/users/cat", json=member, timeout=PATIENCE).status_code == 204
    assert "Continue as cat@127.0.0.1" in _there(browser, browser.open(_asked(broker)), "cat").text
    assert "Continue as cat@127.0.0.1" in browser.open(_asked(broker)).text
    member["groups"] = []
    assert httpx.put(f"{provider.url}/users/cat", json=member, timeout=PATIENCE).status_code == 204
    again = Browser(tmp_path / "again.json")
    assert _there(again, again.open(_asked(broker)), "cat").status == 403
    again.close()
    assert "Continue as" not in browser.open(_asked(broker)).text


def test_a_login_denied_at_the_provider_is_reported(broker, browser):
    page = browser.open(browser.open(_asked(broker)).links[0])
    denied = Page(browser.client.post(page.url, data={"action": "deny"}))
    assert (denied.status, "refused the login" in denied.text) == (401, True)


def test_only_the_browser_that_began_a_login_completes_it(broker, browser, tmp_path):
    page = browser.open(browser.open(_asked(broker)).links[0])
    sent = browser.client.post(page.url, data={"sub": "ann"}, follow_redirects=False)
    back = sent.headers["Location"]
    stranger = Browser(tmp_path / "stranger.json")
    assert stranger.open(back).status == 401
    stranger.close()
    state = parse_qs(urlsplit(back).query)["state"][0]
    for forged in (back.replace(state, "x"), back.replace("code=", "code=x"), back.split("?")[0]):
        assert browser.open(forged).status == 401
    assert browser.open(back).status == 200
    assert browser.open(back).status == 401


def test_a_provider_that_is_down_is_reported(empty_database, tmp_path, browser):
    _configure(tmp_path, "http://127.0.0.1:9")
    with BrokerProcess(empty_database, tmp_path, "", "--config", "broker.toml") as broker:
        page = browser.open(browser.open(_asked(broker)).links[0])
        assert (page.status, "does not answer" in page.text) == (503, True)


@pytest.mark.parametrize(
    "change",
    [
        ('issuer = "{url}"\nclient_id', 'issuer = "https://other.example"\nclient_id'),
        ('client_id = "coget"', ""),
        ('client_id = "coget"', "client_id = 3"),
        ('client_id = "coget"', 'client_id = "coget"\nsurprise = "x"'),
    ],
)
def test_an_invalid_file_is_refused_by_name(tmp_path, change):
    file = tmp_path / "broker.toml"
    file.write_text(CONFIG.replace(*change).format(url="https://iam.example"))
    file.chmod(0o600)
    with pytest.raises(Invalid, match=r"broker\.toml"):
        configured(Settings(), file)
