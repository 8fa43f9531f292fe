import time
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coalloc.depot.daemon.cli import depot
from coalloc.depot.tickets import key_of, read_ticket
from coalloc.errors import UsageError

SECRET = "0123456789abcdef0123456789abcdef"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(SECRET)
    path.chmod(0o600)
    return path


def run(*words: object) -> Result:
    return CliRunner().invoke(depot, list(map(str, words)))


def test_a_ticket_is_printed_as_lines_for_tokens_toml(secret):
    done = run("ticket", "--secret-file", secret, "--name", "a", "--user", "ann", "--destinations", "ftp.example:2811")
    assert done.exit_code == 0
    lines = tomllib.loads(done.stdout)
    ticket = read_ticket(lines["ticket"], SECRET.encode(), "a", time.time())
    assert (ticket.user, list(map(str, ticket.destinations)), ticket.client) == ("ann", ["ftp.example:2811"], "")
    assert bytes.fromhex(lines["key"]) == key_of(lines["ticket"], SECRET.encode())


def test_too_many_destinations_for_a_ticket_are_refused(secret):
    names = [word for number in range(20) for word in ("--destinations", f"server{number}.example")]
    done = run("ticket", "--secret-file", secret, "--user", "ann", *names)
    assert done.exit_code == 2
    assert "give fewer destinations" in done.output


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"", "it is empty"), (b"short", "is shorter than 16 bytes"), (b"\xff" * 16, "it is not UTF-8 text")],
)
def test_an_unsuitable_secret_is_refused(secret, content: bytes, why: str):
    secret.write_bytes(content)
    done = run("serve", "--secret-file", secret)
    assert done.exit_code == 2
    assert f"the secret in {secret}" in done.output
    assert why in done.output
    assert f"openssl rand -hex 32 > {secret}" in done.output


@pytest.mark.parametrize("text", ["1000", "2-1", "0-5", "1-70000", "a-b", "-5"])
def test_an_invalid_range_of_ports_is_refused(text: str):
    done = run("serve", "--data-ports", text)
    assert done.exit_code == 2
    assert "is not FIRST-LAST" in done.output


def test_a_missing_secret_is_refused(tmp_path):
    done = run("serve", "--secret-file", tmp_path / "none")
    assert done.exit_code == 2
    assert f"cannot read {tmp_path / 'none'}: No such file" in done.output


def test_a_secret_that_others_may_read_is_reported(secret, caplog):
    secret.chmod(0o644)
    done = run("ticket", "--secret-file", secret, "--user", "ann", "--destinations", "ftp.example")
    assert done.exit_code == 0
    assert f"others may read or change the secret in {secret}; run: chmod 600 {secret}" in caplog.text


def test_clients_need_destinations():
    done = run("serve", "--clients", "192.0.2.0/24")
    assert done.exit_code == 2
    assert "give the servers that these clients may reach" in done.output


def test_an_unknown_congestion_control_is_refused_at_the_start():
    done = run("serve", "--listen", "127.0.0.1:0", "--congestion", "unheard-of")
    assert isinstance(done.exception, UsageError)
    assert "cannot use congestion control unheard-of" in done.exception.message
    assert "/proc/sys/net/ipv4/tcp_allowed_congestion_control" in done.exception.remedy


@pytest.mark.parametrize(
    ("url", "content", "why"),
    [
        ("https://broker.example", b"", "it is empty"),
        ("https://broker.example", b"a b", "invalid character"),
        ("http://broker.example", b"token", "would be sent unencrypted"),
        ("broker.example", b"token", "is not an address of a broker"),
    ],
)
def test_an_unsuitable_token_or_broker_is_refused(tmp_path, url: str, content: bytes, why: str):
    token = tmp_path / "token"
    token.write_bytes(content)
    token.chmod(0o600)
    done = run("serve", "--broker", url, "--token-file", token)
    assert done.exit_code != 0
    assert why in done.output + getattr(done.exception, "message", "")


@pytest.mark.parametrize("words", [["--broker", "https://broker.example"], ["--token-file", __file__]])
def test_a_broker_needs_a_token(words: list[str]):
    done = run("serve", *words)
    assert done.exit_code == 2
    assert "--broker and --token-file must be given together" in done.output


@pytest.mark.parametrize("command", [[], ["serve"], ["ticket"]])
def test_help_fits_into_a_terminal(command: list[str]):
    done = CliRunner().invoke(depot, [*command, "--help"], terminal_width=80)
    assert max(map(len, done.output.splitlines())) <= 80


@pytest.mark.parametrize("command", ["serve", "ticket"])
def test_the_reference_has_every_option(command: str):
    page = (Path(__file__).parents[4] / "docs/reference/depot.md").read_text()
    section = page.split(f"## coget-depot {command}\n")[1].split("\n## ")[0]
    options = {word for param in depot.commands[command].params for word in param.opts}
    assert {option for option in options if f"`{option} " not in section} == set()
