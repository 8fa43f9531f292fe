"""What only servers need that insist on data channel authentication: our subject, and a proxy signed for them.

This, and nothing else of GSI, reads and writes certificates, and thus needs the `gsi` extra (cryptography).
"""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from coalloc.engine.gridftp.gsi.credential import Credential
from coalloc.errors import ServerSays, Unsupported

if TYPE_CHECKING:
    from cryptography import x509

__all__ = ["own_subject", "sign_proxy"]

PROXY_CERT_INFO = "1.3.6.1.5.5.7.1.14"  # RFC 3820
INHERIT_ALL = bytes.fromhex("300c300a06082b06010505071501")  # ProxyCertInfo: any path length, id-ppl-inheritAll
LONGEST = timedelta(hours=12)
CLOCK_SKEW = timedelta(minutes=5)


def own_subject(credential: Credential) -> str:
    """The user's name as Globus writes it, /C=.../O=.../CN=..., without what proxies added.

    :raises Unsupported: when the `gsi` extra is not installed
    """
    chain = _chain(credential)
    from cryptography.x509 import NameOID

    user = next((each for each in chain if not _is_proxy(each)), chain[-1])
    names = {NameOID.EMAIL_ADDRESS: "emailAddress"}
    parts = [(names.get(part.oid, part.rfc4514_attribute_name), part.value) for part in user.subject]
    return "".join(f"/{name}={value!s}" for name, value in parts)


def sign_proxy(request: bytes, credential: Credential) -> bytes:
    """Sign a server's request (DER) for a proxy of ours, as lasting as ours but no longer than `LONGEST`.

    :return: the proxy, DER; its chain the server has seen already
    :raises ServerSays: when the request makes no sense
    :raises Unsupported: when the `gsi` extra is not installed
    """
    chain = _chain(credential)
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

    try:
        asked = x509.load_der_x509_csr(request)
        if not asked.is_signature_valid:
            raise InvalidSignature
    except (ValueError, InvalidSignature):
        raise ServerSays("the server's request for a proxy makes no sense", "use another replica") from None
    builder = _proxy_of(chain[0]).public_key(asked.public_key())
    key = load_pem_private_key(credential.key.read_bytes(), None)
    return builder.sign(key, SHA256()).public_bytes(Encoding.DER)  # type: ignore[arg-type]  # TLS has used the key


def _proxy_of(issuer: "x509.Certificate") -> "x509.CertificateBuilder":
    from cryptography import x509

    number = x509.random_serial_number()
    name = x509.NameAttribute(x509.NameOID.COMMON_NAME, str(number))
    now = datetime.now(UTC)
    usage = dict.fromkeys(("content_commitment", "data_encipherment", "key_agreement", "key_cert_sign"), False)
    usage |= dict.fromkeys(("crl_sign", "encipher_only", "decipher_only"), False)
    info = next((each.value for each in issuer.extensions if each.oid.dotted_string == PROXY_CERT_INFO), None)
    policy = info or x509.UnrecognizedExtension(x509.ObjectIdentifier(PROXY_CERT_INFO), INHERIT_ALL)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer.subject)
        .subject_name(x509.Name([*issuer.subject.rdns, x509.RelativeDistinguishedName([name])]))
        .serial_number(number)
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(min(now + LONGEST, issuer.not_valid_after_utc))
        .add_extension(policy, critical=True)
        .add_extension(x509.KeyUsage(digital_signature=True, key_encipherment=True, **usage), critical=True)
    )


def _is_proxy(certificate: "x509.Certificate") -> bool:
    return any(each.oid.dotted_string == PROXY_CERT_INFO for each in certificate.extensions)


def _chain(credential: Credential) -> "list[x509.Certificate]":
    try:
        from cryptography import x509
    except ImportError:
        raise Unsupported(
            "the server insists on data channel authentication, for which a library is missing",
            "run pip install 'coget[gsi]'",
        ) from None
    return x509.load_pem_x509_certificates(credential.certificate.read_bytes())
