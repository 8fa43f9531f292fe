"""Tokens, logins and headers where the user has put them: only what no other user can have read or written."""

import os

import pytest

from coalloc.credentials.bearer import discover, token_in
from coalloc.credentials.given_headers import read_headers
from coalloc.credentials.netrc_file import NetrcLogin, parse_netrc, read_netrc
from coalloc.credentials.rules import read_rules
from coalloc.errors import UsageError

UID = os.geteuid()


def test_the_token_is_found_in_the_order_of_the_standard(home, write, monkeypatch):
    assert discover() is None
    write(f"tmp/bt_u{UID}", "from-tmp\n")
    assert discover().token == "from-tmp"
    (home / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(home / "run"))
    assert discover().token == "from-tmp"
    write(f"run/bt_u{UID}", "from-run")
    assert discover().token == "from-run"
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(write("named", "from-file")))
    assert discover().token == "from-file"
    monkeypatch.setenv("BEARER_TOKEN", " from-variable ")
    assert (discover().token, discover().renewable) == ("from-variable", False)


def test_a_new_token_in_the_file_is_used_at_once(write, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN_FILE", str(write("named", "old")))
    assert discover().token == "old"
    write("named", "new")
    assert (discover().token, discover().renewable) == ("new", True)


@pytest.mark.parametrize("name", [f"tmp/bt_u{UID}", "named"])
@pytest.mark.parametrize(
    ("mode", "text", "problem"),
    [
        (0o644, "token", "others may read it"),
        (0o620, "token", "others may read it"),
        (0o600, "", "it is empty"),
        (0o600, "two tokens", "characters that no token has"),
        (0o600, "a\r\nX-Evil: 1", "characters that no token has"),
    ],
)
def test_a_token_that_is_not_private_or_malformed_is_not_used(write, monkeypatch, name, mode, text, problem):
    path = write(name, text, mode)
    if name == "named":
        monkeypatch.setenv("BEARER_TOKEN_FILE", str(path))
    found = discover()
    assert found.token is None
    assert problem in found.problem
    assert str(path) in found.what


@pytest.mark.skipif(UID != 0, reason="only root can give files away")
@pytest.mark.parametrize("named", [True, False])
def test_a_token_that_another_user_has_put_there_is_not_used(write, monkeypatch, named):
    path = write(f"tmp/bt_u{UID}", "planted")
    os.chown(path, 12345, -1)
    found = token_in(path, "it") if named else discover()
    assert (found.token, found.problem) == (None, "it belongs to another user")


def test_links_and_special_files_at_the_usual_place_are_not_followed(home, write):
    place = home / "tmp" / f"bt_u{UID}"
    place.symlink_to(write("elsewhere", "token"))
    assert discover().token is None
    place.unlink()
    os.mkfifo(place, 0o600)
    assert (discover().token, discover().problem) == (None, "it is not a regular file")


def test_no_secret_is_in_the_text_of_what_was_found(home, write, monkeypatch):
    monkeypatch.setenv("BEARER_TOKEN", "s3cret")
    write(".netrc", "machine a.example login ann password hush")
    write(".config/coget/tokens.toml", '[hosts."a.example"]\nbearer_token = "s3cret"\nheaders = ["X-Key: s3cret"]\n')
    shown = repr((discover(), read_netrc(), read_rules()))
    assert "s3cret" not in shown
    assert "hush" not in shown


def test_a_netrc_is_read_as_by_curl():
    text = """# machine no.example login no password no
machine A.example login ann
    password #hush # a comment
machine b.example login bob password "two words \\" and more" account x
macdef init
machine c.example login never password never

machine d.example password only
machine a.example login second password second
machine e.example login nothing
default login anonymous password me@here
"""
    assert parse_netrc(text) == {
        "a.example": NetrcLogin("ann", "#hush"),
        "b.example": NetrcLogin("bob", 'two words " and more'),
        "d.example": NetrcLogin("", "only"),
    }


@pytest.mark.parametrize("text", ["machine", "machine a login", "machine a password", "login x", "#", '"', ""])
def test_an_unfinished_netrc_has_no_login_without_a_password(text):
    assert all(not login.password for login in parse_netrc(text).values())


def test_a_netrc_that_others_may_read_is_not_used(write, monkeypatch):
    path = write("other", "machine a.example login ann password hush", 0o640)
    monkeypatch.setenv("NETRC", str(path))
    assert (dict(read_netrc().logins), read_netrc().path) == ({}, path)
    assert "chmod 600" in read_netrc().problem
    path.chmod(0o600)
    assert list(read_netrc().logins) == ["a.example"]


def test_headers_are_read_from_options_and_files(write):
    path = write("headers", "X-Key: one\n\nauthorization: Bearer abc\n")
    found = read_headers(["x-key: zero", f"@{path}", "User-agent:curl/8"])
    assert found == {"X-Key": "one", "Authorization": "Bearer abc", "User-Agent": "curl/8"}


@pytest.mark.parametrize(
    "text",
    ["s3cret", "s3 cret: x", ": s3cret", "X-Key:", "X-Key: s3cret\r\nX: y", "Range: s3cret", "@/no/such", "é: x"],
)
def test_an_invalid_header_is_refused_without_its_value(text):
    with pytest.raises(UsageError) as caught:
        read_headers([text])
    assert "s3cret" not in caught.value.message
    assert caught.value.remedy


def test_a_rule_also_holds_for_the_other_hosts_that_it_names(write):
    write(
        ".config/coget/config.toml",
        '[hosts."se.example"]\nuse = ["token"]\nalso = ["Pool.example:1094", "b.example"]\n'
        '[hosts."b.example"]\noidc_agent = "b"\n',
    )
    rules = read_rules()
    assert rules["pool.example", 1094] is rules["se.example", None]
    assert rules["b.example", None].oidc_agent == "b"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("config.toml", 'hosts = "x"'),
        ("config.toml", 'hosts.x = "y"'),
        ("config.toml", '[hosts."se.example"]\nbearer_token = "s3cret"'),
        ("config.toml", '[hosts."se.example"]\nuse = ["everything"]'),
        ("config.toml", '[hosts."se.example"]\nuse = "token"'),
        ("config.toml", '[hosts."se.example"]\nbearer_token_file = "relative"'),
        ("config.toml", '[hosts."https://se.example"]\nuse = ["token"]'),
        ("config.toml", '[hosts."*.example"]\nuse = ["token"]'),
        ("config.toml", '[hosts."se.example:99999"]\nuse = ["token"]'),
        ("config.toml", '[hosts."me@se.example"]\nuse = ["token"]'),
        ("config.toml", '[hosts."se.example"]\nalso = ["a/b"]'),
        ("tokens.toml", '[hosts."se.example"]\nheaders = ["s3cret"]'),
        ("tokens.toml", '[hosts."se.example"]\nuse = ["token"]'),
    ],
)
def test_an_invalid_rule_is_refused_without_its_secret(write, file, text):
    write(f".config/coget/{file}", text)
    with pytest.raises(UsageError) as caught:
        read_rules()
    assert caught.value.remedy
    assert "s3cret" not in caught.value.message
