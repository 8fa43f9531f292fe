"""Checks of a server's certificate for revocation and signing policies, by the directory of authorities.

OpenSSL has verified the signatures of the chain. This module looks each certificate up in the revocation lists of its
issuer (`HASH.r0`, `HASH.r1`, ...), and checks its name against the issuer's signing policy (`HASH.signing_policy`). A
certificate that is revoked or violates a policy is refused. If a check is impossible, because a list or a policy is
absent or a list has expired, a warning is logged.
"""

import ssl
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple

from coalloc.engine.gridftp.gsi.der import RevocationList, X509Certificate, certificate, from_pem, revocation_list
from coalloc.engine.gridftp.gsi.names import ambiguous, globus_name, hashes
from coalloc.engine.gridftp.gsi.policies import may_sign
from coalloc.errors import PermissionRefused
from coalloc.safe_text import one_line

__all__ = ["FETCH", "INSTALL", "Authorities", "Doubt", "judge", "survey", "verified_chain"]

GAPS = 10
"""Number of suffixes (.r0, .r1, ...) of revocation lists that are tried even if some are missing."""
REMEDY = "do not use this server; tell its admin"
FETCH = "fetch new revocation lists, for instance with fetch-crl"
INSTALL = "reinstall the files of your grid's CAs"


class Doubt(NamedTuple):
    """A check that was impossible, and the remedy."""

    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}"


class Authorities(NamedTuple):
    """The authorities in a directory: their number, and the names of authorities with missing or expired files."""

    number: int
    without_list: Sequence[str]
    expired_list: Sequence[str]
    without_policy: Sequence[str]


def verified_chain(tls: ssl.SSLObject) -> list[bytes]:
    """Return the chain (DER) that OpenSSL has verified, from the peer's certificate to the trusted authority."""
    if hasattr(tls, "get_verified_chain"):  # Python 3.13
        return list(tls.get_verified_chain())
    chain = tls._sslobj.get_verified_chain()  # type: ignore[attr-defined]
    return [each.public_bytes(ssl._ssl.ENCODING_DER) for each in chain]  # type: ignore[attr-defined]


def judge(chain: Sequence[bytes], folder: Path, where: str) -> list[Doubt]:
    """Check a verified chain by the revocation lists and signing policies in `folder`.

    :returns: a doubt for each check that was impossible

    :raises PermissionRefused: when a certificate is revoked, or its authority may not sign its name
    """
    doubts: list[Doubt] = []
    for shown, issuer in pairwise(map(certificate, chain)):
        doubts += _judge_revocation(shown, issuer, folder, where)
        doubts += _judge_policy(shown, issuer, folder, where)
    return doubts


def _judge_revocation(shown: X509Certificate, issuer: X509Certificate, folder: Path, where: str) -> Iterator[Doubt]:
    now = datetime.now(UTC)
    lists = _lists(issuer, folder)
    current = [each for each in lists if each.is_current(now)]
    if any(shown.serial in each.serials for each in current or lists):
        raise PermissionRefused(f"{where}: the certificate of {_name(shown)} was revoked by {_name(issuer)}", REMEDY)
    if current:
        return
    if lists:
        reason = f"the revocation list of {_name(issuer)} has expired, or is not valid yet"
    else:
        reason = f"there is no revocation list of {_name(issuer)} in {folder} that can be read"
    yield Doubt(f"{where}: {reason}, so coget cannot tell whether {_name(shown)} was revoked", FETCH)


def _judge_policy(shown: X509Certificate, issuer: X509Certificate, folder: Path, where: str) -> Iterator[Doubt]:
    policy = _policy(issuer, folder)
    if policy is None:
        reason = f"there is no signing policy of {_name(issuer)} in {folder}, so it may sign any name"
        yield Doubt(f"{where}: {reason}", INSTALL)
    elif ambiguous(shown.subject) or not may_sign(policy, globus_name(issuer.subject), globus_name(shown.subject)):
        raise PermissionRefused(
            f"{where}: {_name(issuer)} may not sign {_name(shown)}, by its signing policy in {folder}", REMEDY
        )


def _lists(issuer: X509Certificate, folder: Path) -> list[RevocationList]:
    """Return the revocation lists of an authority."""
    found: dict[Path, RevocationList | None] = {}
    for stem in hashes(issuer.subject):
        for number in count():
            file = folder / f"{stem}.r{number}"
            if file.is_file():
                status = file.stat()
                found[file.resolve()] = _read(file, status.st_mtime_ns, status.st_size)
            elif number >= GAPS:
                break
    same = hashes(issuer.subject)[0]
    return [each for each in found.values() if each and hashes(each.issuer)[0] == same]


@lru_cache(maxsize=64)
def _read(file: Path, modified: int, size: int) -> RevocationList | None:
    """Read a revocation list, PEM or DER; return None if the file cannot be read."""
    try:
        read = revocation_list(from_pem(file.read_bytes(), b"X509 CRL"))
        hashes(read.issuer)  # raises ValueError if the issuer's name is malformed
        return read
    except (OSError, ValueError):
        return None


def _policy(issuer: X509Certificate, folder: Path) -> str | None:
    """Return the signing policy of an authority; None if it has none, and an empty one if it is unreadable."""
    for stem in hashes(issuer.subject):
        file = folder / f"{stem}.signing_policy"
        if file.is_file():
            try:
                return file.read_text(errors="replace")
            except OSError:
                return ""
    return None


def _name(of: X509Certificate) -> str:
    """Return a subject in printable form."""
    return one_line(globus_name(of.subject))


def survey(folder: Path) -> Authorities:
    """Check the authorities of a directory for missing or expired files."""
    found: dict[X509Certificate, None] = {}
    for file in folder.glob("*.[0-9]"):
        try:
            found[certificate(from_pem(file.read_bytes(), b"CERTIFICATE"))] = (
                None  # a dict, as links by hash name the same certificate again
            )
        except (OSError, ValueError):
            continue
    now = datetime.now(UTC)
    lists = {_name(each): _lists(each, folder) for each in found}
    return Authorities(
        len(found),
        sorted(name for name, some in lists.items() if not some),
        sorted(name for name, some in lists.items() if some and not any(each.is_current(now) for each in some)),
        sorted(_name(each) for each in found if _policy(each, folder) is None),
    )
