"""The authorities that are trusted for TLS to ordinary servers: https and FTP over TLS.

Trusted are those of SSL_CERT_FILE or SSL_CERT_DIR, else those of certifi, and in addition those of X509_CERT_DIR, a
directory as grids distribute it. Only the latter are bound by its signing policies and revocation lists:
`gridftp.gsi.web_servers` checks their servers.
"""

import os
import re
import ssl
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["AuthorityPlaces", "WebTrust", "authority_places", "trust_in"]

HASHED = re.compile(r"[0-9a-f]{8}\.[0-9]+")
"""Names of the files that OpenSSL finds in a directory of authorities."""


class AuthorityPlaces(NamedTuple):
    """The variables that name authorities; None for those that are not set."""

    file: str | None
    directory: str | None
    grid: str | None


class WebTrust(NamedTuple):
    """A TLS context, and what is needed to check a server beyond it.

    :param folder: X509_CERT_DIR; None if it is not set
    :param usual: certificates (DER) of the other authorities, which the folder does not bind
    """

    context: ssl.SSLContext
    folder: Path | None
    usual: frozenset[bytes]


def authority_places() -> AuthorityPlaces:
    """Return the places that the environment names now."""
    return AuthorityPlaces(*(os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR", "X509_CERT_DIR")))


def trust_in(places: AuthorityPlaces) -> WebTrust:
    """Return a new context that trusts the authorities of these places. Takes 50 ms; so keep it."""
    import httpx

    context, usual = httpx.create_ssl_context(), frozenset[bytes]()
    if not places.grid:
        return WebTrust(context, None, usual)
    usual = frozenset(context.get_ca_certs(binary_form=True))
    if places.directory and not places.file:  # OpenSSL reads a directory only when it looks for an authority
        usual = _authorities_in(places.directory)
    context.load_verify_locations(capath=places.grid)
    return WebTrust(context, Path(places.grid), usual)


def _authorities_in(directories: str) -> frozenset[bytes]:
    """Return the certificates (DER) that OpenSSL finds in directories, which are separated as in PATH."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for directory in map(Path, filter(None, directories.split(os.pathsep))):
        with suppress(OSError):
            for file in directory.iterdir():
                if HASHED.fullmatch(file.name):
                    with suppress(OSError):  # among them ssl.SSLError: no certificate
                        found.load_verify_locations(file)
    return frozenset(found.get_ca_certs(binary_form=True))
