"""A grid's certificates for tests, made with the openssl command: CA, hosts, users, proxies, gridmap.

    grid = Authority(tmp_path / "grid")
    alice = grid.user("Alice")
    grid.map(alice)
    server = start_gridftp(tmp_path / "export", env=grid.server_env(grid.localhost), anonymous=False)
    subprocess.run(["globus-url-copy", ...], env={**os.environ, **grid.client_env(alice.proxy())})

Nothing is written outside the given directory. Certificates are valid for a day by default.
"""

import getpass
import secrets
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import cycle
from pathlib import Path

from tests.support.waiting import PATIENCE

__all__ = ["LIMITED", "Authority", "Identity", "write_proxy_key"]

INHERIT_ALL = "id-ppl-inheritAll"
LIMITED = "1.3.6.1.4.1.3536.1.1.1.9"  # Globus's limited proxy: may read and write files, but not start jobs
ORGANIZATION = "/O=Test Grid"
LOOPBACK = "DNS:localhost,IP:127.0.0.1"

EXTENSIONS = {
    "ca": "basicConstraints=critical,CA:TRUE\nkeyUsage=critical,keyCertSign,cRLSign\nsubjectKeyIdentifier=hash\n",
    "end": "basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature,keyEncipherment\n",
    "proxy": "keyUsage=critical,digitalSignature,keyEncipherment\nproxyCertInfo=critical,language:{}\n",
}


def _openssl(*arguments: object) -> str:
    command = ["openssl", *map(str, arguments)]
    done = subprocess.run(command, timeout=PATIENCE, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout.strip()


def _key(path: Path, kind: str) -> None:
    """Create a private key. :param kind: `ec` (P-256) or `rsa` (2048 bits)"""
    options = ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["RSA"]
    _openssl("genpkey", "-quiet", "-algorithm", *options, "-out", path)
    path.chmod(0o600)


def write_proxy_key(path: Path) -> None:
    """Write one of four RSA keys, in turn: generating a key for each proxy takes up to a second of processor time."""
    path.touch(0o600)
    path.write_text(_proxy_key(next(_turns)))


@cache
def _proxy_key(number: int) -> str:
    return _openssl("genpkey", "-quiet", "-algorithm", "RSA") + "\n"


_turns = cycle(range(4))


@dataclass(frozen=True)
class Identity:
    """A certificate and its key.

    :param certificate: PEM file of the certificate; that of a proxy also contains its key and its issuers
    :param key: file of the key; for a proxy, the same file
    :param issuers: PEM of the certificates between it and the CA, the nearest first
    """

    subject: str
    certificate: Path
    key: Path
    issuers: str = ""

    def proxy(self, days: int = 1, policy: str = INHERIT_ALL, kind: str = "rsa") -> "Identity":
        """Create a proxy of this certificate or proxy, like grid-proxy-init.

        :param days: lifetime in days; if negative, it expired that many days ago
        :param policy: `INHERIT_ALL` or `LIMITED`
        """
        number = str(secrets.randbelow(10**9))
        file, key = self.certificate.with_name(f"proxy-{number}"), self.certificate.with_name(f"proxy-{number}.key")
        if kind == "rsa":
            write_proxy_key(key)
        else:
            _key(key, kind)
        subject = f"{self.subject}/CN={number}"
        _sign(subject, key, file, EXTENSIONS["proxy"].format(policy), self, days)
        own, issuer = file.read_text(), self.certificate.read_text().partition("-----BEGIN PRIVATE")[0]
        file.chmod(0o600)
        file.write_text(own + key.read_text() + issuer + self.issuers)
        return Identity(subject, file, file, issuer + self.issuers)


def _sign(subject: str, key: Path, place: Path, extensions: str, issuer: Identity | None, days: int = 1) -> None:
    request, settings = place.with_suffix(".csr"), place.with_suffix(".cnf")
    settings.write_text(extensions)
    _openssl("req", "-new", "-key", key, "-subj", subject, "-out", request)
    signer = ["-CA", issuer.certificate, "-CAkey", issuer.key, "-CAcreateserial"] if issuer else ["-signkey", key]
    _openssl("x509", "-req", "-in", request, *signer, "-days", days, "-sha256", "-extfile", settings, "-out", place)


class Authority:
    """A certificate authority, the directory of trusted authorities, and a certificate for this host.

    It signs with RSA, because the Globus tools cannot make proxies of certificates signed with elliptic curves.
    """

    def __init__(self, place: Path, name: str = "Test CA") -> None:
        self.place = place
        self.trusted = place / "certificates"
        self.gridmap = place / "grid-mapfile"
        self.trusted.mkdir(parents=True)
        self.gridmap.touch()
        self.authority = self._issue(f"{ORGANIZATION}/CN={name}", "ca", None, EXTENSIONS["ca"], kind="rsa")
        self.trust(self)
        self.localhost = self.host()

    def trust(self, other: "Authority") -> None:
        """Add `other` to the directory of trusted authorities."""
        ca = other.authority
        hashed = _openssl("x509", "-in", ca.certificate, "-noout", "-hash")
        (self.trusted / f"{hashed}.0").write_text(ca.certificate.read_text())
        may_sign = f"access_id_CA X509 '{ca.subject}'\npos_rights globus CA:sign\ncond_subjects globus '\"/*\"'\n"
        (self.trusted / f"{hashed}.signing_policy").write_text(may_sign)

    def host(
        self, common_name: str = "localhost", names: str = LOOPBACK, stem: str = "host", days: int = 1
    ) -> Identity:
        """Issue a host certificate.

        :param names: value of openssl's subjectAltName; empty for none
        :param stem: name of its files, without the ending
        """
        alternatives = f"subjectAltName={names}\n" if names else ""
        escaped = common_name.replace("/", "\\/")
        subject = f"{ORGANIZATION}/CN={escaped}"
        return self._issue(subject, stem, self.authority, EXTENSIONS["end"] + alternatives, days)

    def user(self, name: str = "Alice", days: int = 1, kind: str = "rsa") -> Identity:
        """Issue a user's certificate, with an unencrypted key."""
        return self._issue(f"{ORGANIZATION}/CN={name}", name, self.authority, EXTENSIONS["end"], days, kind)

    def intermediate(self, name: str = "Intermediate CA", stem: str = "intermediate") -> Identity:
        """Issue a certificate for another CA, which is not in the directory of trusted authorities."""
        return self._issue(f"{ORGANIZATION}/CN={name}", stem, self.authority, EXTENSIONS["ca"], kind="rsa")

    def host_below(self, intermediate: Identity, stem: str = "below") -> Identity:
        """Issue a certificate for this host by an intermediate CA; the file also contains that CA's certificate."""
        host = self._issue(
            f"{ORGANIZATION}/CN=localhost", stem, intermediate, EXTENSIONS["end"] + f"subjectAltName={LOOPBACK}\n"
        )
        host.certificate.write_text(host.certificate.read_text() + intermediate.certificate.read_text())
        return host

    def hashed(self, ca: Identity | None = None, old: bool = False) -> str:
        """Return the hash that begins the names of a CA's files in the directory of trusted authorities.

        :param old: whether to return the hash of OpenSSL versions before 1.0
        """
        option = "-subject_hash_old" if old else "-hash"
        return _openssl("x509", "-in", (ca or self.authority).certificate, "-noout", option)

    def revoke(
        self, *revoked: Identity, by: Identity | None = None, days: tuple[int, int] = (-1, 1), to: Path | None = None
    ) -> Path:
        """Write a revocation list; return its file.

        :param by: the CA that signs it; by default, this one
        :param days: begin and end of its validity, in days from now
        :param to: file to write; by default, `HASH.r0` in the directory of trusted authorities
        """
        ca, place = by or self.authority, self.place / f"list-{secrets.token_hex(4)}"
        place.mkdir()
        begin, end = (f"{datetime.now(UTC) + timedelta(each):%y%m%d%H%M%SZ}" for each in days)
        serials = [_openssl("x509", "-in", each.certificate, "-noout", "-serial").partition("=")[2] for each in revoked]
        lines = [f"R\t{end}\t{begin}\t{serial}\tunknown\t/CN=x\n" for serial in serials]
        (place / "index.txt").write_text("".join(lines))
        (place / "ca.cnf").write_text(f"[ca]\ndefault_ca=x\n[x]\ndatabase={place}/index.txt\ndefault_md=sha256\n")
        file = to or self.trusted / f"{self.hashed(ca)}.r0"
        signer = ["-config", place / "ca.cnf", "-keyfile", ca.key, "-cert", ca.certificate]
        _openssl("ca", "-gencrl", *signer, "-crl_lastupdate", begin, "-crl_nextupdate", end, "-out", file)
        return file

    def _issue(
        self,
        subject: str,
        stem: str,
        issuer: Identity | None,
        extensions: str,
        days: int = 1,
        kind: str = "ec",
    ) -> Identity:
        identity = Identity(subject, self.place / f"{stem}.pem", self.place / f"{stem}.key")
        _key(identity.key, kind)
        _sign(subject, identity.key, identity.certificate, extensions, issuer, days)
        return identity

    def map(self, user: Identity, account: str | None = None) -> None:
        """Map a user to an account in the gridmap; by default, to the account that runs the tests."""
        with self.gridmap.open("a") as file:
            file.write(f'"{user.subject}" {account or getpass.getuser()}\n')

    def server_env(self, host: Identity, tls: str = "TLSv1.3") -> dict[str, str]:
        """Return environment variables for a server.

        :param tls: newest version of TLS that it may use
        """
        return {
            "X509_CERT_DIR": str(self.trusted),
            "X509_USER_CERT": str(host.certificate),
            "X509_USER_KEY": str(host.key),
            "GRIDMAP": str(self.gridmap),
            "GLOBUS_GSSAPI_MAX_TLS_PROTOCOL": tls.replace("v", "").replace(".", "_") + "_VERSION",
        }

    def client_env(self, proxy: Identity) -> dict[str, str]:
        """Return environment variables for a client with this proxy."""
        return {"X509_CERT_DIR": str(self.trusted), "X509_USER_PROXY": str(proxy.certificate)}
