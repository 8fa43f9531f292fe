"""Credentials: where coget finds them, and which it refuses before it contacts a server."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from coalloc.engine.gridftp.gsi.credential import (
    Credential,
    check_dates,
    find_authorities,
    find_credential,
    tls_context,
)
from coalloc.errors import PermissionRefused
from tests.support.waiting import PATIENCE


@pytest.fixture
def home(no_proxy, tmp_path):
    (tmp_path / "home/.globus").mkdir()
    return tmp_path / "home"


def private(path, content="x"):
    path.write_text(content)
    path.chmod(0o600)
    return path


def test_the_proxy_comes_first_and_variables_before_default_places(home, tmp_path, monkeypatch):
    certificate = private(home / ".globus/usercert.pem")
    key = private(home / ".globus/userkey.pem")
    assert find_credential() == Credential(certificate, key)
    mine = private(tmp_path / "mine.pem")
    monkeypatch.setenv("X509_USER_CERT", str(mine))
    monkeypatch.setenv("X509_USER_KEY", str(mine))
    assert find_credential() == Credential(mine, mine)
    proxy = private(tmp_path / f"x509up_u{os.geteuid()}")
    assert find_credential() == Credential(proxy, proxy)
    named = private(tmp_path / "named")
    monkeypatch.setenv("X509_USER_PROXY", str(named))
    assert find_credential() == Credential(named, named)


def test_missing_credential_is_an_error_with_a_remedy(home, tmp_path):
    with pytest.raises(PermissionRefused, match=f"neither {tmp_path}/x509up_u") as caught:
        find_credential()
    assert "grid-proxy-init" in caught.value.remedy


def test_a_named_proxy_that_does_not_exist(home, tmp_path, monkeypatch):
    private(tmp_path / f"x509up_u{os.geteuid()}")
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "gone"))
    with pytest.raises(PermissionRefused, match=r"cannot read .*gone: No such file"):
        find_credential()


def test_a_directory_that_may_not_be_searched(home, monkeypatch):
    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refuse)
    with pytest.raises(PermissionRefused, match=rf"cannot read .*x509up_u{os.geteuid()}: Permission denied") as caught:
        find_credential()
    assert "X509_USER_PROXY" in caught.value.remedy


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_key_open_to_others(home, tmp_path, mode):
    proxy = private(tmp_path / f"x509up_u{os.geteuid()}")
    proxy.chmod(mode)
    with pytest.raises(PermissionRefused, match=f"{mode:04o}") as caught:
        find_credential()
    assert caught.value.remedy == f"run chmod 600 {proxy}"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_proxy_that_someone_else_put_there(home, tmp_path):
    os.chown(private(tmp_path / f"x509up_u{os.geteuid()}"), 65534, -1)
    with pytest.raises(PermissionRefused, match="belongs to another user"):
        find_credential()


def test_authorities(home, tmp_path, monkeypatch):
    with pytest.raises(PermissionRefused, match="certificates not found") as caught:
        find_authorities()
    assert "X509_CERT_DIR" in caught.value.remedy
    (home / ".globus/certificates").mkdir()
    assert find_authorities() == home / ".globus/certificates"
    monkeypatch.setenv("X509_CERT_DIR", str(tmp_path))
    assert find_authorities() == tmp_path
    monkeypatch.setenv("X509_CERT_DIR", str(tmp_path / "none"))
    with pytest.raises(PermissionRefused, match=str(tmp_path / "none")):
        find_authorities()


def test_a_key_with_a_pass_phrase(grid, alice, tmp_path):
    locked = tmp_path / "locked.key"
    lock = ["openssl", "pkey", "-in", alice.key, "-aes256", "-passout", "pass:secret", "-out", locked]
    subprocess.run(lock, timeout=PATIENCE, check=True)
    with pytest.raises(PermissionRefused, match="needs a pass phrase") as caught:
        tls_context(Credential(alice.certificate, locked), grid.trusted)
    assert "grid-proxy-init" in caught.value.remedy


def test_files_that_are_no_credential(grid, alice, tmp_path):
    other = grid.user("Other").key
    for certificate, key in [(alice.certificate, other), (private(tmp_path / "text"), other), (tmp_path, other)]:
        with pytest.raises(PermissionRefused, match="no usable certificate"):
            tls_context(Credential(certificate, key), grid.trusted)


def check(identity, authorities):
    check_dates(Credential(identity.certificate, identity.key), authorities)


def test_dates(grid, alice, alice_proxy, tmp_path):
    check(alice, grid.trusted)
    check(alice_proxy, grid.trusted)
    with pytest.raises(PermissionRefused, match="has expired"):
        check(alice.proxy(days=-1), grid.trusted)
    with pytest.raises(PermissionRefused, match="has expired"):
        check(grid.user("Past", days=-1).proxy(), grid.trusted)


def test_dates_are_not_judged_where_the_ca_is_unknown(alice, tmp_path):
    check(alice.proxy(days=-1), tmp_path)
