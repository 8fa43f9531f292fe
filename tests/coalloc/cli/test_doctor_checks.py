"""The findings of `coget doctor` on this machine."""

import shutil
from pathlib import Path

import pytest

from coalloc.cli.doctor_checks import checkup
from coalloc.engine.limits.server_slots import Slots
from tests.support.gsi import Authority


@pytest.fixture(autouse=True)
def machine(monkeypatch, tmp_path):
    """A machine without configuration."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("X509_CERT_DIR", "XDG_DATA_HOME", "XDG_STATE_HOME", "COGET_HISTORY", "COGET_CONNECTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("X509_USER_PROXY", str(tmp_path / "proxy.pem"))
    return tmp_path


def found(thing):
    return [finding for finding in checkup() if finding.thing == thing]


def make_proxy(machine: Path, days: int) -> None:
    """A proxy at X509_USER_PROXY; a negative `days` means that it expired this long ago."""
    proxy = Authority(machine / "authority").user().proxy(days)
    (machine / "proxy.pem").write_bytes(proxy.certificate.read_bytes())
    (machine / "proxy.pem").chmod(0o600)


def test_every_finding_that_is_not_ok_has_a_remedy():
    findings = checkup()
    assert {"coget", "libraries", "globus-url-copy", "certificate", "authorities", "history", "terminal"} <= {
        finding.thing for finding in findings
    }
    assert all(bool(finding.remedy) == (finding.state != "ok") for finding in findings)


def test_without_a_proxy(machine):
    (finding,) = found("certificate")
    assert finding.state == "limited"
    assert str(machine / "proxy.pem") in finding.detail


def test_a_valid_proxy(machine):
    make_proxy(machine, days=2)
    (finding,) = found("certificate")
    assert finding.state == "ok"
    assert "valid until" in finding.detail


def test_an_expired_proxy(machine):
    make_proxy(machine, days=-1)
    (finding,) = found("certificate")
    assert finding.state == "limited"
    assert "expired at" in finding.detail


def test_a_proxy_that_others_can_read(machine):
    make_proxy(machine, days=2)
    (machine / "proxy.pem").chmod(0o644)
    (finding,) = found("certificate")
    assert finding.state == "limited"
    assert finding.remedy == f"run chmod 600 {machine / 'proxy.pem'}"


def test_a_proxy_file_without_a_certificate(machine):
    (machine / "proxy.pem").write_text("nonsense")
    (machine / "proxy.pem").chmod(0o600)
    (finding,) = found("certificate")
    assert finding.state == "limited"
    assert "contains no certificate" in finding.detail


def test_the_ca_folder(machine, monkeypatch):
    monkeypatch.setenv("X509_CERT_DIR", str(machine / "cas"))
    (absent,) = found("authorities")
    assert absent.state == "limited"
    (machine / "cas").mkdir()
    (empty,) = found("authorities")
    assert (empty.state, empty.detail) == ("limited", f"{machine / 'cas'}, 0 CA certificates")
    (machine / "cas" / "12345678.0").touch()
    (good,) = found("authorities")
    assert good.state == "ok"


def test_revocation_lists_and_signing_policies(machine, monkeypatch, grid, tmp_path):
    monkeypatch.setenv("X509_CERT_DIR", str(tmp_path / "cas"))
    shutil.copytree(grid.trusted, tmp_path / "cas", ignore=shutil.ignore_patterns("*.r0"))
    stem = tmp_path / "cas" / grid.hashed()
    (lists,), (policies,) = found("revocation lists"), found("signing policies")
    assert (lists.state, policies.state) == ("limited", "ok")
    assert lists.detail == "1 of 1 CAs have no list that can be read: /O=Test Grid/CN=Test CA"
    grid.revoke(to=stem.with_suffix(".r0"), days=(-9, -1))
    stem.with_suffix(".signing_policy").unlink()
    (lists,), (policies,) = found("revocation lists"), found("signing policies")
    assert lists.detail == "1 of 1 CAs have a list that is not valid now: /O=Test Grid/CN=Test CA"
    assert (policies.state, policies.detail) == ("limited", "1 of 1 CAs have no policy: /O=Test Grid/CN=Test CA")
    grid.revoke(to=stem.with_suffix(".r0"))
    (lists,) = found("revocation lists")
    assert lists.state == "ok"


def test_cogets_variables_are_shown_without_passwords(monkeypatch):
    monkeypatch.setenv("COGET_BROKER", "https://me:secret@broker.example")
    (finding,) = found("COGET_BROKER")
    assert "broker.example" in finding.detail
    assert "secret" not in finding.detail


def test_the_history_file(machine, monkeypatch):
    (fresh,) = found("history")
    assert fresh.detail == f"{machine / 'home/.local/share/coget/history.sqlite'}, not yet written"
    monkeypatch.setenv("COGET_HISTORY", "off")
    (off,) = found("history")
    assert (off.state, off.detail) == ("ok", "off, as set by COGET_HISTORY")


def test_a_history_that_cannot_be_written(machine, monkeypatch):
    (machine / "file").touch()
    monkeypatch.setenv("COGET_HISTORY", str(machine / "file" / "history.sqlite"))
    (finding,) = found("history")
    assert finding.state == "wrong"
    assert str(machine / "file") in finding.remedy


def test_connections_finding_reports_the_limit_or_that_it_is_off(monkeypatch):
    (finding,) = found("connections")
    assert finding.state == "ok"
    assert "at most 32 to a server" in finding.detail
    monkeypatch.setenv("COGET_CONNECTIONS", "off")
    (finding,) = found("connections")
    assert (finding.state, finding.detail) == ("ok", "no limit, as set by COGET_CONNECTIONS")


def test_connections_that_cannot_be_counted(monkeypatch, machine):
    folder = machine / "not-ours-alone"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setattr(Slots, "from_environment", classmethod(lambda cls: cls(folder)))
    (finding,) = found("connections")
    assert finding.state == "limited"
    assert str(folder) in finding.remedy


def test_a_number_of_connections_that_makes_no_sense(monkeypatch):
    monkeypatch.setenv("COGET_CONNECTIONS", "many")
    (finding,) = found("connections")
    assert finding.state == "wrong"


def test_no_token_is_shown(machine, monkeypatch):
    monkeypatch.setenv("COGET_BROKER_TOKEN", "cogetb_secret")
    (finding,) = found("COGET_BROKER_TOKEN")
    assert finding.detail == "set"
