"""Logins of the real globus CLI and SDK: by credentials, with tokens of an earlier login, and interactively."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from broker.models.identities import identity
from tests.support.broker import PROGRAM, BrokerProcess
from tests.support.browser import Browser, program
from tests.support.globus import ENVIRONMENT, Globus
from tests.support.programs import run

AUTH, TRANSFER = "auth.globus.org", "transfer.api.globus.org"
CONSENTS = """
auth = AuthClient(authorizer=AccessTokenAuthorizer(sys.argv[1]))
forest = auth.get_consents(sys.argv[2]).to_forest()
print(json.dumps([forest.meets_scope_requirements(each) for each in (sys.argv[3], "unheard:of")]))
"""
SERVERS = {
    AUTH,
    TRANSFER,
    "groups.api.globus.org",
    "search.api.globus.org",
    "524230d7-ea86-4a52-8312-86065a9e0417",
    "flows.globus.org",
}


@pytest.fixture
def broker(empty_database: str, tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(empty_database, tmp_path) as started:
        yield started
        log = started.log()
        for secret in (started.token, *started.secrets):
            assert secret not in log


def _program(*words: str) -> str:
    return run([PROGRAM, *words], text=True, check=True).stdout.strip()


@pytest.fixture
def ann(broker: BrokerProcess, empty_database: str) -> str:
    token = _program("token", "create", "ann", "--role", "transfer", "--database", empty_database)
    broker.secrets.append(token)
    return token


@pytest.fixture
def service(broker: BrokerProcess, empty_database: str) -> tuple[str, str]:
    number, secret = _program("client", "create", "robot", "--role", "transfer", "--database", empty_database).split()
    broker.secrets.append(secret)
    return number, secret


@pytest.fixture
def home(tmp_path: Path, broker: BrokerProcess) -> Globus:
    return Globus(tmp_path / "home", broker.url)


def test_a_service_needs_no_login(home, service):
    home.as_client(*service)
    assert home.cli("whoami").stdout == "robot@localhost\n"
    assert home.json("whoami")["sub"] == str(identity("robot"))
    assert home.json("api", "transfer", "GET", "/broker/v1/whoami") == {
        "subject": "robot",
        "role": "transfer",
        "site": "",
    }
    assert home.cli("get-identities", "robot@localhost").stdout == f"{identity('robot')}\n"
    assert home.json("session", "show") == {"authentications": {}}


def test_a_service_uses_the_sdk(home, service):
    result = home.sdk(
        """
app = ClientApp("tests", client_id=sys.argv[1], client_secret=sys.argv[2],
                config=GlobusAppConfig(token_storage="memory"))
transfer, auth = TransferClient(app=app), AuthClient(app=app)
try:
    ConfidentialAppAuthClient(sys.argv[1], "wrong").oauth2_client_credentials_tokens("openid")
except AuthAPIError as error:
    refused = [error.http_status, error.raw_json["error"], error.message]
print(json.dumps([transfer.get("/broker/v1/whoami")["role"], auth.userinfo()["preferred_username"],
                  [each["username"] for each in auth.get_identities(usernames="robot@localhost,x@y")], refused]))
""",
        *service,
    )
    wrong = [401, "invalid_client", "the client is unknown, or its secret is wrong"]
    assert result == ["transfer", "robot@localhost", ["robot@localhost"], wrong]


def test_a_wrong_secret_is_refused_and_named(home, service):
    home.as_client(service[0], "cogetb_wrong")
    assert "the client is unknown, or its secret is wrong" in home.cli("whoami", status=1).stderr


def test_people_log_in_and_out(home, ann, tmp_path, broker):
    assert "globus login" in home.cli("whoami", status=4).stderr
    output = home.cli("login", BROWSER=program(tmp_path / "cookies.json", ann)).stdout
    assert "You have successfully logged in" in output
    assert home.cli("whoami").stdout == "ann@localhost\n"
    assert home.json("whoami", "--linked-identities")[0]["username"] == "ann@localhost"
    assert home.json("api", "transfer", "GET", "/broker/v1/whoami")["role"] == "transfer"
    assert home.cli("get-identities", "ann@localhost", str(identity("admin")), "nobody@localhost").stdout.split() == [
        str(identity("ann")),
        "admin@localhost",
        "NO_SUCH_IDENTITY",
    ]
    session = home.json("session", "show")
    assert list(session["authentications"]) == [str(identity("ann"))]
    tokens = _remembered(home)
    broker.secrets.extend(token[kind] for token in tokens.values() for kind in ("access_token", "refresh_token"))
    assert set(tokens) == SERVERS
    transfer = f"urn:globus:auth:scope:{TRANSFER}:all"
    assert home.sdk(CONSENTS, tokens[AUTH]["access_token"], str(identity("ann")), transfer) == [True, False]
    assert "Logging out of Globus as ann@localhost" in home.cli("logout", "--yes").stdout
    home.cli("whoami", status=4)
    client = broker.client()
    for token in tokens.values():
        bearer = {"Authorization": f"Bearer {token['access_token']}"}
        assert client.get("/broker/v1/whoami", headers=bearer).status_code == 401
    home.cli("login", BROWSER=program(tmp_path / "cookies.json", "no token is asked for again"))
    assert home.cli("whoami").stdout == "ann@localhost\n"


def _storage(home: Globus) -> Path:
    return Path(home.environment["HOME"]) / ".globus" / "cli" / "storage.db"


def _remembered(home: Globus) -> dict:
    with closing(sqlite3.connect(_storage(home))) as database:
        rows = database.execute("SELECT namespace, resource_server, token_data_json FROM token_storage").fetchall()
    assert {row[0] for row in rows} == {f"userprofile/{ENVIRONMENT}"}
    return {server: json.loads(text) for _, server, text in rows}


def test_tokens_of_an_earlier_login_are_refreshed(home, ann, tmp_path, broker):
    home.cli("login", BROWSER=program(tmp_path / "cookies.json", ann))
    tokens, config = _remembered(home), _kept(home, "auth_client_data")
    for token in tokens.values():
        token["expires_at_seconds"] = 0  # the token has expired, and is refreshed
    later = Globus(tmp_path / "later", broker.url)
    later.remember(config["client_id"], config["client_secret"], str(identity("ann")), tokens)
    assert later.cli("whoami").stdout == "ann@localhost\n"
    assert later.json("api", "transfer", "GET", "/broker/v1/whoami")["subject"] == "ann"
    assert _remembered(later)["auth.globus.org"]["access_token"] != tokens["auth.globus.org"]["access_token"]


def _kept(home: Globus, name: str) -> dict:
    with closing(sqlite3.connect(_storage(home))) as database:
        (row,) = database.execute("SELECT config_data_json FROM config_storage WHERE config_name = ?", (name,))
    return json.loads(row[0])


def test_people_log_in_by_the_sdk(home, ann, tmp_path, empty_database):
    number = _program("client", "create", "notebook", "--database", empty_database)
    result = home.sdk(
        """
config = GlobusAppConfig(token_storage="memory", login_flow_manager="local-server", request_refresh_tokens=True)
app = UserApp("tests", client_id=sys.argv[1], config=config)
transfer, auth = TransferClient(app=app), AuthClient(app=app)
auth.add_app_scope(AuthClient.scopes.profile)
app.login()
replies = [transfer.get("/broker/v1/whoami")["subject"], auth.userinfo()["preferred_username"]]
app.logout()
print(json.dumps([*replies, app.login_required()]))
""",
        number,
        BROWSER=program(tmp_path / "cookies.json", ann),
    )
    assert result == ["ann", "ann@localhost", True]


def test_a_code_is_exchanged_by_the_sdk_and_its_tokens_live_on(home, ann, tmp_path, empty_database):
    number = _program("client", "create", "notebook", "--database", empty_database)
    result = home.sdk(
        """
import subprocess
client = NativeAppAuthClient(sys.argv[1])
client.oauth2_start_flow(["openid", "email", TransferClient.scopes.all], refresh_tokens=True)
shown = subprocess.run([sys.argv[2], client.oauth2_get_authorize_url()], capture_output=True, text=True, check=True)
answer = client.oauth2_exchange_code_for_tokens(json.loads(shown.stdout)["words"]["code"])
transfer = answer.by_resource_server["transfer.api.globus.org"]
old = RefreshTokenAuthorizer(transfer["refresh_token"], client, access_token=transfer["access_token"], expires_at=1)
subject = TransferClient(authorizer=old).get("/broker/v1/whoami")["subject"]
client.oauth2_revoke_token(old.refresh_token)
try:
    TransferClient(authorizer=AccessTokenAuthorizer(old.access_token)).get("/broker/v1/whoami")
except TransferAPIError as error:
    status = error.http_status
print(json.dumps([subject, status, answer.decode_id_token()["sub"]]))
""",
        number,
        program(tmp_path / "cookies.json", ann).removesuffix(" %s"),
    )
    assert result == ["ann", 401, str(identity("ann"))]


def test_people_log_in_by_copying_a_code(home, ann, tmp_path):
    browser = Browser(tmp_path / "cookies.json")
    link = _link(home)
    page = browser.send(browser.open(link), token=ann)
    assert page.status == 200
    assert page.url.split("?")[0].endswith("/v2/web/auth-code")
    browser.close()
    output = home.cli("login", "--no-local-server", stdin=page.words["code"] + "\n").stdout
    assert "You have successfully logged in" in output


def _link(home: Globus) -> str:
    """Return the URL that the CLI asks users to open; asked again, it uses the same client."""
    output = home.cli("login", "--no-local-server", status=1, stdin="").stdout
    return next(line for line in output.splitlines() if line.startswith("http"))
