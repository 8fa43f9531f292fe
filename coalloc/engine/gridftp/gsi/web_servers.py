"""The check of ordinary TLS servers whose authority is a grid's: `trust` by the files of X509_CERT_DIR."""

import logging
import ssl
from functools import lru_cache

from coalloc.engine.gridftp.gsi.trust import judge, verified_chain
from coalloc.engine.web_authorities import WebTrust

__all__ = ["check_web_server"]

log = logging.getLogger(__name__)


def check_web_server(trust: WebTrust, tls: ssl.SSLObject, host: str) -> None:
    """Check a server whose authority is only in X509_CERT_DIR, by its revocation lists and signing policies.

    :raises PermissionRefused: when its certificate is revoked, or its authority may not sign its name
    """
    if trust.folder is None:
        return
    chain = verified_chain(tls)
    if chain[-1] not in trust.usual:
        for doubt in judge(chain, trust.folder, host):
            _warn_once(str(doubt))


@lru_cache(maxsize=1024)
def _warn_once(text: str) -> None:
    log.warning("%s", text)
