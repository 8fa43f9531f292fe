"""TLS contexts for https: the authorities that are trusted, and the client certificate.

Trusted are the authorities of SSL_CERT_FILE or SSL_CERT_DIR, else those of certifi, and in addition those of
X509_CERT_DIR, a directory as grids distribute it. Only the latter are bound by its signing policies and revocation
lists, and only their servers are checked.
"""

import logging
import os
import ssl
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import httpx

from coalloc.credentials.certificates import ClientCertificate

__all__ = ["WebTrust", "check_server", "web_trust"]

log = logging.getLogger(__name__)


class WebTrust(NamedTuple):
    """A TLS context, and what is needed to check a server beyond it.

    :param folder: X509_CERT_DIR; None if it is not set
    :param usual: certificates (DER) of the other authorities, which the folder does not bind
    """

    context: ssl.SSLContext
    folder: Path | None
    usual: frozenset[bytes]


def web_trust(certificate: ClientCertificate | None) -> WebTrust:
    """Return the context that shows a client certificate to servers that ask for one.

    :raises PermissionRefused: when the files of the certificate cannot be used
    """
    named = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "X509_CERT_DIR")]
    changed = tuple(file.stat().st_mtime_ns for file in certificate or () if file.exists())
    return _made(*named, certificate, changed)


@lru_cache(maxsize=16)  # reading all authorities takes 50 ms, too long for each source
def _made(
    file: str | None,
    directory: str | None,
    folder: str | None,
    certificate: ClientCertificate | None,
    changed: tuple[int, ...],
) -> WebTrust:
    context, usual = httpx.create_ssl_context(), frozenset[bytes]()
    if folder:
        usual = frozenset(context.get_ca_certs(binary_form=True))
        context.load_verify_locations(capath=folder)
    if certificate:
        from coalloc.engine.gridftp.gsi.credential import Credential, present  # few web servers want a certificate

        present(context, Credential(*certificate))
    return WebTrust(context, Path(folder) if folder else None, usual)


def check_server(trust: WebTrust, tls: ssl.SSLObject, host: str) -> None:
    """Check a server whose authority is only in X509_CERT_DIR, by its revocation lists and signing policies.

    :raises PermissionRefused: when its certificate is revoked, or its authority may not sign its name
    """
    if trust.folder is None:
        return
    from coalloc.engine.gridftp.gsi.trust import judge, verified_chain

    chain = verified_chain(tls)
    if chain[-1] not in trust.usual:
        for doubt in judge(chain, trust.folder, host):
            _warn_once(str(doubt))


@lru_cache(maxsize=1024)
def _warn_once(text: str) -> None:
    log.warning("%s", text)
