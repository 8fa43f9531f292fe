"""Certificates for servers that require data channel authentication: the user's subject, and a signed proxy.

The proxy is limited (it can read and write files, but not start jobs), lasts an hour at most, and cannot be delegated
further. Only this part of GSI writes certificates, and thus needs the `gsi` extra (cryptography).
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coalloc.engine.gridftp.gsi.credential import Credential
from coalloc.engine.gridftp.gsi.names import globus_name
from coalloc.errors import ServerSays, Unsupported

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["last_moment", "own_subject", "short_proxy", "sign_proxy"]

PROXY_CERT_INFO = "1.3.6.1.5.5.7.1.14"  # RFC 3820
LIMITED = bytes.fromhex("300f300d060b2b060104019b5001010109")
"""ProxyCertInfo with the policy of Globus's limited proxies, 1.3.6.1.4.1.3536.1.1.1.9."""
LAST = bytes.fromhex("3012020100300d060b2b060104019b5001010109")
"""ProxyCertInfo with the same policy that also forbids proxies derived from this one."""
LONGEST = timedelta(hours=1)
CLOCK_SKEW = timedelta(minutes=5)
"""Allowance for a server whose clock is late; included in `LONGEST`."""


def own_subject(credential: Credential) -> str:
    """Return the user's subject in Globus notation, /C=.../O=.../CN=..., without the parts that proxies added.

    :raises Unsupported: when the `gsi` extra is not installed
    """
    chain = _chain(credential)
    return globus_name(next((each for each in chain if not _is_proxy(each)), chain[-1]).subject.public_bytes())


def sign_proxy(request: bytes, credential: Credential) -> bytes:
    """Sign a server's request (DER) for a limited proxy, valid as long as the user's chain, but at most `LONGEST`.

    :returns: the proxy (DER), without its chain, which the server knows already
    :raises ServerSays: when the request is malformed
    :raises Unsupported: when the `gsi` extra is not installed
    """
    chain = _chain(credential)
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    try:
        csr = x509.load_der_x509_csr(request)
        if not csr.is_signature_valid:
            raise InvalidSignature
    except (ValueError, InvalidSignature):
        raise ServerSays("the server's request for a proxy is malformed", "use another replica") from None
    key = load_pem_private_key(credential.key.read_bytes(), None)
    builder = _proxy_of(chain, LAST).public_key(csr.public_key())
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)  # type: ignore[arg-type]  # TLS has used the key


def short_proxy(credential: Credential, delegates: bool) -> bytes:
    """Return a limited proxy for the user, with key and chain (PEM), for a program that always delegates.

    The proxies that the program delegates are then limited, too, and last no longer.

    :param delegates: whether the proxies that the program delegates are valid
    """
    chain = _chain(credential)
    from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
        load_pem_private_key,
    )

    own = generate_private_key(65537, 2048)
    key = load_pem_private_key(credential.key.read_bytes(), None)
    proxy = _proxy_of(chain, LIMITED if delegates else LAST).public_key(own.public_key()).sign(key, SHA256())  # type: ignore[arg-type]
    private = own.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    return b"".join([proxy.public_bytes(Encoding.PEM), private, *(each.public_bytes(Encoding.PEM) for each in chain)])


def last_moment(proxy: bytes) -> datetime:
    """Return the end of validity of a proxy (DER)."""
    from cryptography.x509 import load_der_x509_certificate

    return load_der_x509_certificate(proxy).not_valid_after_utc


def _proxy_of(chain: "list[x509.Certificate]", info: bytes) -> "x509.CertificateBuilder":
    from cryptography import x509

    issuer = chain[0]
    number = x509.random_serial_number()
    name = x509.NameAttribute(x509.NameOID.COMMON_NAME, str(number))
    begin = datetime.now(UTC) - CLOCK_SKEW
    end = min(begin + LONGEST, *(each.not_valid_after_utc for each in chain))
    usage = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign"), False)
    usage |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    limited = x509.UnrecognizedExtension(x509.ObjectIdentifier(PROXY_CERT_INFO), info)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer.subject)
        .subject_name(x509.Name([*issuer.subject.rdns, x509.RelativeDistinguishedName([name])]))
        .serial_number(number)
        .not_valid_before(min(begin, end - timedelta(seconds=1)))
        .not_valid_after(end)
        .add_extension(limited, critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_encipherment=True, **usage), critical=True)
    )


def _is_proxy(certificate: "x509.Certificate") -> bool:
    return any(each.oid.dotted_string == PROXY_CERT_INFO for each in certificate.extensions)


def _chain(credential: Credential) -> "list[x509.Certificate]":
    try:
        from cryptography import x509
    except ImportError:
        raise Unsupported(
            "signing a proxy, or authenticating to a server, needs a library that is missing",
            "run pip install 'coget[gsi]'",
        ) from None
    return x509.load_pem_x509_certificates(credential.certificate.read_bytes())
