"""Fixtures of the GridFTP engine's tests."""

import pytest

from coalloc.engine.gridftp.gsi import credential


@pytest.fixture
def no_proxy(monkeypatch, tmp_path):
    """Hide this machine's credentials; the home directory is `tmp_path / "home"`."""
    for name in ("X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY", "X509_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(credential, "PROXY", str(tmp_path / "x509up_u{uid}"))
    monkeypatch.setattr(credential, "AUTHORITIES", ("~/.globus/certificates",))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
