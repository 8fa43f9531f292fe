"""Conversion of failures of TLS to coget's errors."""

import ssl

from coalloc.errors import ConnectionLost, NotThatProtocol, PermissionRefused, SourceError

__all__ = ["tls_failure"]


def tls_failure(error: OSError, where: str) -> SourceError:
    """Return the error for a failed handshake.

    :param where: the server, as HOST:PORT
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return PermissionRefused(
            f"{where}: the server's certificate is not trusted: {error.verify_message}",
            "set SSL_CERT_FILE to the certificate of its authority; if it has expired, tell its admin",
        )
    if isinstance(error, ssl.SSLError) and error.reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return NotThatProtocol(
            f"{where} does not begin with TLS", "check the port; write ftpes:// if the server expects AUTH TLS"
        )
    return ConnectionLost(f"{where}: the TLS connection was lost: {error}", "try again")
