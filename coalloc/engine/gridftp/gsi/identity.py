"""Comparison of a verified certificate with the requested host. No I/O, no name look-ups.

The rules are those of RFC 2818, with the grid's additions: the name may be in the CN alone, also as `host/NAME`. It is
compared with the host in the URL. Globus tools look up the name of an address, so that the operator of the name service
can choose it; this module does not: a URL with an address needs a certificate with that address.
"""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

__all__ = ["certificate_names", "matches"]


def certificate_names(certificate: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the host names and addresses of a certificate, in the form of `SSLObject.getpeercert`.

    >>> certificate_names({"subject": ((("organizationName", "Grid"),), (("commonName", "host/se1.example"),))})
    ('se1.example',)
    """
    alternatives = certificate.get("subjectAltName", ())
    named = tuple(str(value) for kind, value in alternatives if kind in ("DNS", "IP Address"))
    if any(kind == "DNS" for kind, _ in alternatives):
        return named
    common = [str(value) for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return (*named, *(name.rpartition("/")[2] for name in common[-1:]))


def matches(host: str, names: tuple[str, ...]) -> bool:
    """Return whether one of `names` stands for `host`; `*` stands for one whole first label.

    >>> matches("se1.example.org", ("*.example.org",)), matches("a.se1.example.org", ("*.example.org",))
    (True, False)
    """
    try:
        address = ip_address(host)
    except ValueError:
        return any(_same_name(host.lower().rstrip("."), name.lower().rstrip(".")) for name in names)
    return any(_same_address(name) == address for name in names)


def _same_name(host: str, name: str) -> bool:
    if not name.startswith("*."):
        return host == name
    _, _, domain = host.partition(".")
    return domain == name[2:] and "." in domain


def _same_address(name: str) -> Any:
    try:
        return ip_address(name)
    except ValueError:
        return None
