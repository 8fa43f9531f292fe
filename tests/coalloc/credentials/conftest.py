"""Fixtures of the tests of credentials."""

import pytest

from coalloc.credentials import bearer, certificates

VARIABLES = ("BEARER_TOKEN", "BEARER_TOKEN_FILE", "NETRC", "X509_USER_PROXY", "X509_USER_CERT", "X509_USER_KEY")
MORE = ("X509_CERT_DIR", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home directory; this machine's own credentials and usual places are hidden."""
    for name in (*VARIABLES, *MORE, *map(str.upper, MORE)):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    (home / ".config" / "coget").mkdir(parents=True)
    (home / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(bearer, "SHARED", str(home / "tmp"))
    monkeypatch.setattr(certificates, "PROXY", str(home / "tmp" / "x509up_u{uid}"))
    return home


@pytest.fixture
def write(home):
    """A function that writes a file below the home directory, with this mode, and returns its path."""

    def write(name, text, mode=0o600):
        path = home / name
        path.write_text(text)
        path.chmod(mode)
        return path

    return write
