"""The configuration file: a value of a wrong type is an error that names the section, wherever it is."""

import copy
import json
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from broker.config.settings import Settings, configured
from broker.errors import Invalid
from tests.support import programs
from tests.support.broker import PROGRAM

GOOD: dict[str, Any] = {
    "issuer": [
        {"url": "https://iam.example/", "audience": ["us"], "roles": {"a": "reader"}, "algorithms": ["RS256"]},
    ],
    "login": {"issuer": "https://iam.example/", "client_id": "us", "client_secret": "s", "scope": "openid"},
    "introspection": {
        "url": "https://a.example/i",
        "client_id": "us",
        "client_secret_file": "secret",
        "roles": {"x": "reader"},
        "audience": ["us"],
        "issuer": "https://a.example/",
    },
    "notify": {"url": "https://hook.example/x", "secret": "whsec_" + "QUFB" * 8},
    "credentials": {"robot": {"proxy": "p.pem", "for": ["gsiftp://dtn.example:2811/a/"]}, "old": "q.pem"},
    "probing": {"a_day": "50 GB", "bytes": "64 MB", "seconds": 5},
    "report": {
        "directory": "weeks",
        "to": ["ann@x.example"],
        "sender": "coget@x.example",
        "smtp": "mail.x.example:25",
        "starttls": True,
        "user": "coget",
        "password_file": "secret",
    },
    "network": {"allow": ["10.0.0.0/8"]},
    "proxy": {"trusted": ["192.0.2.0/24"]},
    "transfers": {"copy_unverified": True},
    "limits": {"added_per_hour": 5},
}
"""A file with all settings."""
VALUES: tuple[object, ...] = (3, 1.5, True, "text", date(2026, 11, 22), ["text"], [[3]], {"text": "text"}, {"text": []})
"""Values of each type of TOML."""
ALSO: dict[tuple[object, ...], tuple[type, ...]] = {
    ("issuer", 0, "audience"): (str,),
    ("introspection", "audience"): (str,),
    ("credentials", "robot"): (str,),
    ("probing", "a_day"): (int, float),
    ("probing", "bytes"): (int, float),
    ("probing", "seconds"): (int, float),
}
"""Other types that a setting may have."""


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {toml(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return value.isoformat() if isinstance(value, date) else json.dumps(value)


def places(value: object, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the keys and indices that lead to each value below this one."""
    named = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in named:
        yield (*at, name)
        yield from places(each, (*at, name))


def changed(at: tuple[Any, ...], value: object) -> tuple[dict[str, Any], object]:
    """Return the good document with another value at a place, and the value that was there."""
    document = copy.deepcopy(GOOD)
    there: Any = document
    for name in at[:-1]:
        there = there[name]
    before, there[at[-1]] = there[at[-1]], value
    return document, before


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "broker.toml"
    path.touch(0o600)
    return path


def write(file: Path, document: dict[str, Any]) -> None:
    file.write_text("".join(f"{name} = {toml(value)}\n" for name, value in document.items()))


@pytest.mark.parametrize("at", list(places(GOOD)), ids=lambda at: ".".join(map(str, at)))
def test_a_value_of_a_wrong_type_is_refused(file, at):
    write(file, GOOD)
    configured(Settings(), file)
    for value in VALUES:
        document, before = changed(at, value)
        if type(value) not in (type(before), *ALSO.get(at, ())):
            write(file, document)
            with pytest.raises(Invalid) as refused:
                configured(Settings(), file)
            assert refused.value.message.startswith(f"{file}: "), value
            assert at[0] in refused.value.message, value
            assert refused.value.remedy, value


@pytest.mark.parametrize(
    ("at", "value", "message"),
    [
        (("issuer", 0, "algorithms"), [], "invalid [[issuer]]: algorithms is empty"),
        (("issuer", 0, "audience"), [], "invalid [[issuer]]: audience is empty"),
        (("issuer", 0, "audience"), "", "invalid [[issuer]]: audience is empty"),
        (("issuer", 0, "algorithms"), ["HS256"], "invalid [[issuer]]: algorithm HS256 is refused"),
        (("issuer", 0, "url"), "ftp://x", "invalid [[issuer]]: url ftp://x is not the URL of an issuer"),
        (("introspection", "audience"), [], "invalid [introspection]: audience is empty"),
        (("introspection", "issuer"), "ftp://x", "invalid [introspection]: issuer ftp://x is not the URL"),
        (("introspection", "url"), "here", "invalid [introspection]: url here is not the URL of a server"),
        (("introspection", "client_id"), 3, "invalid [introspection]: client_id is not a string"),
        (("login", "scope"), 3, "invalid [login]: scope is not a string"),
        (("login", "issuer"), "https://x", "invalid [login]: issuer https://x is not one of the [[issuer]]"),
        (("notify", "secret"), "whsec_QUFB", "invalid [notify]: secret is not base64 of 24 bytes or more"),
        (("notify", "url"), "http://hook.example/", "invalid [notify]: url is not https://"),
    ],
)
def test_a_message_names_the_key(file, at, value, message):
    document, _ = changed(at, value)
    write(file, document)
    with pytest.raises(Invalid) as refused:
        configured(Settings(), file)
    assert refused.value.message.startswith(f"{file}: {message}")


@pytest.mark.parametrize("section", ["login", "introspection", "notify"])
def test_missing_and_unknown_keys_are_named(file, section):
    document = copy.deepcopy(GOOD)
    gone = "client_id" if section != "notify" else "secret"
    del document[section][gone]
    write(file, document)
    with pytest.raises(Invalid) as refused:
        configured(Settings(), file)
    assert f"[{section}] has no " in refused.value.message
    assert gone in refused.value.message
    document = copy.deepcopy(GOOD)
    document[section]["colour"] = "red"
    write(file, document)
    with pytest.raises(Invalid) as refused:
        configured(Settings(), file)
    assert refused.value.message == f"{file}: invalid [{section}]: colour is unknown"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("report = 1", "[report] is not a table"),
        ("issuer = 3", "[[issuer]] is not a list of tables"),
        ('[issuer]\nurl = "https://x.example/"', "[[issuer]] is not a list of tables"),
        (
            '[report]\nto = "a@x.example"\nsender = "b@x.example"\nsmtp = "x.example"',
            "invalid [report]: to is not a list",
        ),
        (
            '[[issuer]]\nurl = "https://x.example/"\naudience = "us"\nroles = { S = ["reader"] }',
            "invalid [[issuer]]: a role is not one of reader, transfer, curator, admin",
        ),
    ],
)
def test_the_command_names_the_setting(file, text, message):
    file.write_text(text)
    done = programs.run([PROGRAM, "upgrade", "--config", str(file), "--database", "sqlite://"], text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"coget-broker: {file}: {message}" in done.stderr
    assert "Traceback" not in done.stderr
