"""The user's client certificates for https: which file is shown, and why."""

import os
import time
from pathlib import Path
from typing import NamedTuple

from coalloc.credentials.decision import RequestFacts, to_allow, why_not
from coalloc.credentials.private_files import why_not_private

__all__ = ["CertificateChoice", "ClientCertificate", "choose_certificate"]


PROXY = "/tmp/x509up_u{uid}"
"""Usual place of a proxy."""


class ClientCertificate(NamedTuple):
    """PEM files of a certificate with its chain, and of its key; a proxy has all in one file."""

    certificate: Path
    key: Path


class CertificateChoice(NamedTuple):
    """The certificate for a server, if it asks for one.

    :param shown: None for none
    :param what: description of it, or of the one that is not shown; empty if there is none
    :param problem: why it is not shown
    """

    shown: ClientCertificate | None = None
    what: str = ""
    problem: str = ""


def choose_certificate(facts: RequestFacts) -> CertificateChoice:
    """Return the certificate for a server.

    The files of X509_* variables are for servers that the user names. Files at usual places, which nothing in the
    command mentions, are for servers with a rule only, as a certificate tells the user's name.
    """
    if facts.server.scheme != "https":
        return CertificateChoice()
    rule = facts.rule
    if rule and rule.certificate and rule.key:
        of_rule = ClientCertificate(rule.certificate, rule.key)
        return _checked(of_rule, f'the certificate {rule.certificate} of [hosts."{rule.place}"]')
    if found := _named():
        problem = why_not("certificate", facts)
    elif found := _usual():
        allowed = rule and "certificate" in rule.use
        problem = None if allowed else f"no variable names it; {to_allow('certificate', facts.server)}"
    else:
        return CertificateChoice()
    what = f"the certificate {found.certificate}"
    return CertificateChoice(None, what, problem) if problem else _checked(found, what)


def _named() -> ClientCertificate | None:
    """Return the certificate that variables name."""
    if proxy := os.environ.get("X509_USER_PROXY"):
        return ClientCertificate(Path(proxy), Path(proxy))
    certificate, key = os.environ.get("X509_USER_CERT"), os.environ.get("X509_USER_KEY")
    return ClientCertificate(Path(certificate), Path(key)) if certificate and key else None


def _usual() -> ClientCertificate | None:
    """Return the proxy or certificate at its usual place, as of the Globus tools."""
    proxy, folder = Path(PROXY.format(uid=os.geteuid())), Path(os.environ.get("HOME") or "/nonexistent", ".globus")
    usual = ((proxy, proxy), (folder / "usercert.pem", folder / "userkey.pem"))
    return next((ClientCertificate(*pair) for pair in usual if all(map(os.path.exists, pair))), None)


def _checked(found: ClientCertificate, what: str) -> CertificateChoice:
    try:
        problem = why_not_private(found.key.stat()) or _why_unusable(found) or _why_not_now(found.certificate)
    except OSError as error:
        problem = f"it cannot be read: {error.strerror or error}"
    return CertificateChoice(None if problem else found, what, problem or "")


def _why_unusable(found: ClientCertificate) -> str | None:
    """Return why a certificate cannot be shown. :raises OSError: when the files are not a certificate with its key"""
    import ssl

    asked = False

    def no_password() -> str:
        nonlocal asked
        asked = True
        return ""

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(*found, password=no_password)
    except (OSError, ValueError):
        if not asked:
            raise
    return "its key needs a pass phrase" if asked else None


def _why_not_now(certificate: Path) -> str | None:
    """Return why a certificate must not be shown now: servers that ask for one may refuse all requests with an old one.

    :raises OSError: when the file cannot be read, or has no certificate
    """
    import ssl

    end = ssl.cert_time_to_seconds(ssl._ssl._test_decode_cert(str(certificate))["notAfter"])  # type: ignore[attr-defined]
    return "it has expired; make a new one, for instance with voms-proxy-init" if end < time.time() else None
