"""TLS contexts for https: the authorities that are trusted (`web_authorities`), and the client certificate."""

import ssl
from functools import lru_cache

from coalloc.credentials.certificates import ClientCertificate
from coalloc.engine.web_authorities import AuthorityPlaces, WebTrust, authority_places, trust_in

__all__ = ["WebTrust", "check_server", "web_trust"]


def web_trust(certificate: ClientCertificate | None) -> WebTrust:
    """Return the context that shows a client certificate to servers that ask for one.

    :raises PermissionRefused: when the files of the certificate cannot be used
    """
    changed = tuple(file.stat().st_mtime_ns for file in certificate or () if file.exists())
    return _made(authority_places(), certificate, changed)


@lru_cache(maxsize=16)  # reading all authorities takes 50 ms, too long for each source
def _made(places: AuthorityPlaces, certificate: ClientCertificate | None, changed: tuple[int, ...]) -> WebTrust:
    trust = trust_in(places)
    if certificate:
        from coalloc.engine.gridftp.gsi.credential import Credential, present  # few web servers want a certificate

        present(trust.context, Credential(*certificate))
    return trust


def check_server(trust: WebTrust, tls: ssl.SSLObject, host: str) -> None:
    """Check a server whose authority is only in X509_CERT_DIR.

    :raises PermissionRefused: when its certificate is revoked, or its authority may not sign its name
    """
    if trust.folder:
        from coalloc.engine.gridftp.gsi.web_servers import check_web_server  # few users have grid authorities

        check_web_server(trust, tls, host)
