"""The user's credential for GSI servers and the trusted authorities: their files, and checks of them.

The places are those of the Globus tools. This module sends nothing, and the server decides whether it accepts the
credential. But problems that are visible on this machine (no proxy, readable by others, expired) are reported before
a server is asked, since servers' messages about them are poor. Needs only the standard library.
"""

import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from coalloc.errors import PermissionRefused

__all__ = ["NEW_PROXY", "Credential", "check_dates", "find_authorities", "find_credential", "present", "tls_context"]

PROXY = "/tmp/x509up_u{uid}"
NEW_PROXY = "run grid-proxy-init (or voms-proxy-init) for a new proxy"
AUTHORITIES = ("~/.globus/certificates", "/etc/grid-security/certificates")
EXPIRED, NOT_YET_VALID = 10, 9  # X509_V_ERR_CERT_HAS_EXPIRED, X509_V_ERR_CERT_NOT_YET_VALID


@dataclass(frozen=True)
class Credential:
    """PEM files: a certificate followed by its chain, and its private key; a proxy has all in one file."""

    certificate: Path
    key: Path


def find_credential(proxy: Path | None = None) -> Credential:
    """Find the proxy, else the user's own certificate; X509_* variables take precedence over default places.

    :param proxy: a proxy file to use instead
    :raises PermissionRefused: when there is no credential, it may not be read, or another user may have read or
        written the key
    """
    named, usual = proxy or os.environ.get("X509_USER_PROXY"), Path(PROXY.format(uid=os.geteuid()))
    folder = Path.home() / ".globus"
    certificate = Path(os.environ.get("X509_USER_CERT") or folder / "usercert.pem")
    key = Path(os.environ.get("X509_USER_KEY") or folder / "userkey.pem")
    if named:
        found = Credential(Path(named), Path(named))
    elif _exists(usual):
        found = Credential(usual, usual)
    elif _exists(certificate) and _exists(key):
        found = Credential(certificate, key)
    else:
        raise PermissionRefused(f"no proxy certificate found: neither {usual} nor {certificate} exists", NEW_PROXY)
    _check_private(found.key)
    return found


def _exists(path: Path) -> bool:
    """Return whether a file exists. :raises PermissionRefused: when its directory may not be searched"""
    try:
        return path.exists()
    except PermissionError as error:
        raise PermissionRefused(
            f"cannot read {path}: {error.strerror}",
            f"make {path.parent} accessible to you, or set X509_USER_PROXY to another file",
        ) from None


def _check_private(key: Path) -> None:
    try:
        status = key.stat()
    except OSError as error:
        raise PermissionRefused(f"cannot read the proxy or key {key}: {error.strerror}", NEW_PROXY) from None
    if status.st_uid != os.geteuid():
        raise PermissionRefused(f"{key} belongs to another user", NEW_PROXY)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise PermissionRefused(f"{key} can be read by other users: its mode is {mode:04o}", f"run chmod 600 {key}")


def find_authorities() -> Path:
    """Find the directory of trusted CA certificates, whose files are named by hashes.

    :raises PermissionRefused: when there is no such directory
    """
    named = os.environ.get("X509_CERT_DIR")
    places = [Path(named)] if named else [Path(place).expanduser() for place in AUTHORITIES]
    for place in places:
        if place.is_dir():
            return place
    raise PermissionRefused(
        f"no directory of trusted CA certificates: {' and '.join(map(str, places))} not found",
        "install your grid's CA certificates, or set X509_CERT_DIR to their directory",
    )


def tls_context(credential: Credential, authorities: Path) -> ssl.SSLContext:
    """Return a TLS client context that shows `credential` and trusts `authorities`; the caller checks the host's name.

    OpenSSL refuses proxy certificates of servers, as no flag allows them.

    :raises PermissionRefused: when the credential cannot be used
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # `identity` applies the grid's rules for names
    context.load_verify_locations(capath=authorities)
    present(context, credential)
    return context


def present(context: ssl.SSLContext, credential: Credential) -> None:
    """Make a context show a credential. :raises PermissionRefused: when its files cannot be used"""

    def refuse() -> str:
        raise PermissionRefused(f"the key {credential.key} needs a pass phrase", NEW_PROXY)

    try:
        context.load_cert_chain(credential.certificate, credential.key, password=refuse)
    except OSError as error:  # including ssl.SSLError: not PEM, or a key of another certificate
        reason = f"{credential.certificate} contains no usable certificate with its key: {error.strerror or error}"
        raise PermissionRefused(reason, NEW_PROXY) from None


def check_dates(credential: Credential, authorities: Path) -> None:
    """Check that each certificate of the chain is valid now, by a handshake in memory, with both ends in this process.

    OpenSSL thus checks the whole chain as a server will. If the CA of the chain is unknown here, nothing is checked.

    :raises PermissionRefused: when a certificate has expired, or is not yet valid
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.verify_mode = ssl.CERT_REQUIRED
    server.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
    server.load_verify_locations(capath=authorities)
    for context in (client, server):
        present(context, credential)
    try:
        _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        if error.verify_code == EXPIRED:
            raise PermissionRefused(f"{credential.certificate} has expired", NEW_PROXY) from None
        if error.verify_code == NOT_YET_VALID:
            raise PermissionRefused(
                f"{credential.certificate} is not yet valid", "check the clock of this machine"
            ) from None


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server)
    judging = server.wrap_bio(to_server, to_client, server_side=True)
    while True:
        for end in (asking, judging):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            if end is judging:
                return
