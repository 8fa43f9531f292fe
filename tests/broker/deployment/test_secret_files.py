"""Secrets in the broker's TOML and environment: file permissions, and separate secret files."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.settings import Settings, configured
from broker.errors import Invalid
from broker.storage.database import Database, addressed
from tests.support.broker import PROGRAM
from tests.support.programs import run

ISSUER = '[[issuer]]\nurl = "https://iam.example"\naudience = ["b"]\nroles = { x = "reader" }\n'
LOGIN = ISSUER + '[login]\nissuer = "https://iam.example"\nclient_id = "coget"\n'
INTROSPECTION = '[introspection]\nurl = "https://a.example/i"\nclient_id = "us"\nroles = { x = "reader" }\n'
NOTIFY = '[notify]\nurl = "https://hook.example/coget"\n'
KEY = "whsec_" + "YWJj" * 10
SECRETS = [
    (LOGIN, "client_secret", "s3cret"),
    (INTROSPECTION, "client_secret", "s3cret"),
    (NOTIFY, "secret", KEY),
]
IN_URLS = [
    f'{NOTIFY}secret_file = "s"\n'.replace("/coget", "/coget?token=s3cret"),
    f'{NOTIFY}secret_file = "s"\n'.replace("https://", "https://s3cret@"),
    f'{INTROSPECTION}client_secret_file = "s"\n'.replace("https://", "https://us:s3cret@"),
]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """The path of a TOML file that others may read, not yet written; and a file with a secret."""
    (tmp_path / "s").write_text(f"{KEY}\n")
    path = tmp_path / "broker.toml"
    path.touch(0o600)
    return path


@pytest.mark.parametrize("toml", [f'{text}{key} = "{value}"\n' for text, key, value in SECRETS] + IN_URLS)
@pytest.mark.parametrize("mode", [0o604, 0o644, 0o666, 0o602])
def test_a_file_with_secrets_that_everybody_may_read_is_refused(file, toml, mode):
    file.write_text(toml)
    file.chmod(mode)
    with pytest.raises(Invalid) as refused:
        configured(Settings(), file)
    assert (str(file) in refused.value.message, refused.value.remedy) == (True, f"run: chmod o= {file}")
    assert "s3cret" not in refused.value.message + refused.value.remedy


@pytest.mark.parametrize("toml", [f'{text}{key} = "{value}"\n' for text, key, value in SECRETS])
@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o660])
def test_a_group_may_read_them(file, toml, mode):
    file.write_text(toml)
    file.chmod(mode)
    configured(Settings(), file)


@pytest.mark.parametrize("toml", [f'{text}{key}_file = "s"\n' for text, key, _ in SECRETS] + [ISSUER, ""])
def test_a_file_without_secrets_may_be_read_by_everybody(file, toml):
    file.write_text(toml)
    file.chmod(0o644)
    configured(Settings(), file)


def test_it_is_the_file_behind_a_link_that_counts(file):
    link = file.with_name("link.toml")
    link.symlink_to(file)
    file.write_text(f'{NOTIFY}secret = "{KEY}"\n')
    configured(Settings(), link)
    file.chmod(0o644)
    with pytest.raises(Invalid, match=r"all users of this machine"):
        configured(Settings(), link)


@pytest.mark.parametrize(("text", "key", "value"), SECRETS)
@pytest.mark.parametrize("end", ["", "\n", "\r\n", "\n\n"])
def test_a_secret_may_be_in_a_file_of_its_own(file, text, key, value, end):
    (file.parent / "s").write_text(value + end)
    file.write_text(f'{text}{key}_file = "s"\n')
    from_file = configured(Settings(), file)
    file.write_text(f'{text}{key} = "{value}"\n')
    assert from_file == configured(Settings(), file)


@pytest.mark.parametrize(("text", "key", "value"), SECRETS)
@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ('{key}_file = "s"\n{key} = "{value}"', "has {key} and {key}_file"),
        ('{key}_file = "absent"', "cannot read"),
        ('{key}_file = "."', "cannot read"),
        ("{key}_file = 3", "is not a string"),
        ('{key}_file = "empty"', "is empty"),
        ('{key}_file = "binary"', "is not UTF-8"),
    ],
)
def test_invalid_files_of_secrets_are_refused(file, text, key, value, setting, why):
    (file.parent / "empty").write_text("\n")
    (file.parent / "binary").write_bytes(b"\xffs3cret")
    file.write_text(text + setting.format(key=key, value=value) + "\n")
    with pytest.raises(Invalid, match=why.format(key=key)) as refused:
        configured(Settings(), file)
    assert str(file) in refused.value.message


def _run(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return run([PROGRAM, *words], cwd=folder, env=os.environ | variables, text=True)


def test_the_database_may_be_named_by_a_file(tmp_path):
    (tmp_path / "url").write_text("sqlite:///there.sqlite\n")
    named = {"COGET_BROKER_DATABASE_FILE": "url"}
    assert _run(tmp_path, "upgrade", **named).returncode == 0
    assert (tmp_path / "there.sqlite").exists()
    nothing = _run(tmp_path, "token", "list", COGET_BROKER_DATABASE="", **named)
    assert (nothing.returncode, nothing.stdout) == (0, "")
    both = _run(tmp_path, "token", "list", COGET_BROKER_DATABASE="sqlite:///s3cret.sqlite", **named)
    assert (both.returncode, "COGET_BROKER_DATABASE_FILE are both set" in both.stderr) == (2, True)
    assert "s3cret" not in both.stderr
    other = _run(tmp_path, "upgrade", "--database", "sqlite:///other.sqlite", **named)
    assert (other.returncode, (tmp_path / "other.sqlite").exists()) == (0, True)
    absent = _run(tmp_path, "token", "list", COGET_BROKER_DATABASE_FILE="absent")
    assert (absent.returncode, "absent of COGET_BROKER_DATABASE_FILE: " in absent.stderr) == (2, True)


@pytest.mark.parametrize("url", ["s3cret", "postgresql://u:s3cret/x@h/n", "postgresql://u:1:s3cret@h:s3cret/n"])
def test_an_invalid_address_is_not_shown(tmp_path, url):
    (tmp_path / "url").write_text(url)
    refused = _run(tmp_path, "token", "list", COGET_BROKER_DATABASE_FILE="url")
    assert (refused.returncode, "s3cret" in refused.stdout + refused.stderr) == (2, False)


@pytest.mark.parametrize("url", ["postgresql://u:s3cret@h/n", "postgresql://u@h/n?password=s3cret"])
def test_the_password_of_a_database_is_not_logged(url):
    assert "s3cret" not in Database(addressed(url)).shown
