"""Subjects: the names of people and programs that own tokens. No two people share a subject.

The subject of a person from an identity provider is `SUB@ISSUER`, both in full and percent-encoded, so that both can
be read back. Admins issue tokens to names of other forms. Globus clients see a user name instead, which is derived
from the subject and also belongs to one person only.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

from broker.models.identities import number

__all__ = ["BROKERS", "CALLED", "LONGEST", "LONGEST_PART", "Foreign", "Usernames", "refusal", "reserved"]

BROKERS = frozenset({"broker", "broker.probes", "broker.reports", "coget-broker"})
"""Subjects of the broker itself: for its measurements, its weekly reports, and its own actions."""
ANONYMOUS = "anonymous"
LONGEST_PART = 255
"""Most bytes of UTF-8 in a `sub` or an issuer; OpenID Connect allows 255 ASCII characters for a `sub`."""
LONGEST = 2 * 3 * LONGEST_PART + 1
"""Most characters of a subject, since databases limit the length of keys."""
LONGEST_CALLED = 200
CALLED = re.compile(rf"[A-Za-z0-9_.@:/+-]{{1,{LONGEST_CALLED}}}")
"""Syntax of subjects to which admins issue tokens."""
PLAIN = ":/+"
"""Characters that are not percent-encoded, besides letters, digits and `_.-~`."""
FOREIGN = re.compile(r"@https?:", re.IGNORECASE)


class Foreign(NamedTuple):
    """A person from an identity provider.

    :param sub: issuer's id for the person
    :param issuer: URL of the issuer, exactly as it is configured
    """

    sub: str
    issuer: str

    @classmethod
    def of(cls, sub: object, issuer: str) -> Self:
        """Return the person with this `sub`. :raises ValueError: when the `sub` is invalid, with the reason"""
        if not isinstance(sub, str) or not sub:
            raise ValueError("its sub is empty or not a string")
        try:
            size = max(len(sub.encode()), len(issuer.encode()))
        except UnicodeEncodeError:
            raise ValueError("its sub has an invalid character") from None
        if size > LONGEST_PART:
            raise ValueError(f"its sub or its issuer is longer than {LONGEST_PART} bytes")
        return cls(sub, issuer)

    @classmethod
    def read(cls, subject: str) -> Self | None:
        """Parse a subject `SUB@ISSUER`; return None for other subjects.

        >>> Foreign.read("a%40b@https://iam.example/"), Foreign.read("ann@iam.example")
        (Foreign(sub='a@b', issuer='https://iam.example/'), None)
        """
        sub, _, issuer = subject.partition("@")
        found = cls(unquote(sub), unquote(issuer))
        whole = sub and found.issuer.startswith(("http://", "https://"))
        return found if whole and str(found) == subject else None

    def former(self, host: str) -> str | None:
        """Return the person's subject in the older form, SUB@HOST; None if several people could have had that subject.

        >>> Foreign("ann", "https://iam.example/").former("iam.example"), Foreign("a_nn", "").former("iam.example")
        ('ann@iam.example', None)
        """
        name = f"{self.sub}@{host}"
        sure = CALLED.fullmatch(name) and "_" not in self.sub and len(name) < LONGEST_CALLED
        return name if sure else None

    def __str__(self) -> str:
        """Return the subject.

        >>> str(Foreign("a lice", "https://iam.example/cms")), str(Foreign("a_lice", "https://iam.example/cms"))
        ('a%20lice@https://iam.example/cms', 'a_lice@https://iam.example/cms')
        """
        return f"{quote(self.sub, safe=PLAIN)}@{quote(self.issuer, safe=PLAIN)}"


def reserved(subject: str) -> bool:
    """Return whether a name is reserved, for the broker or for callers without a token; case does not matter.

    >>> reserved("Anonymous"), reserved("broker"), reserved("brokers")
    (True, True, False)
    """
    return subject.casefold() in BROKERS | {ANONYMOUS}


def refusal(subject: str) -> str | None:
    """Return the reason why admins must not issue tokens to a subject; None if they may.

    >>> refusal("ann@iam.example"), refusal("ann@https://iam.example/")
    (None, 'has the form of a subject of an issuer')
    """
    if not CALLED.fullmatch(subject):
        return f"is not up to {LONGEST_CALLED} letters, digits and _.@:/+-"
    if reserved(subject):
        return "is reserved"
    if FOREIGN.search(subject):
        return "has the form of a subject of an issuer"
    if number(subject) is not None:
        return "is a UUID, which is reserved for identities"
    return None


class Usernames(NamedTuple):
    """The translation of subjects to user names for Globus clients, which need the form NAME@DOMAIN.

    :param domain: domain for subjects that have none
    :param issuers: issuers by host, if a host has only one; the user name of other issuers' people is their subject
    """

    domain: str
    issuers: Mapping[str, str]

    @classmethod
    def among(cls, domain: str, issuers: Iterable[str]) -> Self:
        """Return the translation for these issuers, without issuers whose host is shared or equals the domain."""
        hosts: dict[str, set[str]] = {}
        for each in issuers:
            hosts.setdefault(urlsplit(each).hostname or "", set()).add(each)
        return cls(
            domain, {host: each for host, (each, *more) in hosts.items() if not more and host not in ("", domain)}
        )

    def of(self, subject: str) -> str:
        """Return the user name of a subject, which no other subject has.

        >>> these = Usernames.among("broker.example", ["https://iam.example/cms", "https://a.example/", \
"https://a.example/b"])
        >>> [these.of(each) for each in ("ann", "bob@x.example", "ann@broker.example", "ann@iam.example")]
        ['ann@broker.example', 'bob@x.example', 'ann@broker.example@broker.example', 'ann@iam.example@broker.example']
        >>> [these.of(str(Foreign("ann", each))) for each in ("https://iam.example/cms", "https://a.example/")]
        ['ann@iam.example', 'ann@https://a.example/']
        """
        if known := Foreign.read(subject):
            host = urlsplit(known.issuer).hostname or ""
            return f"{quote(known.sub, safe=PLAIN)}@{host}" if self.issuers.get(host) == known.issuer else subject
        _, at, host = subject.rpartition("@")
        return f"{subject}@{self.domain}" if not at or host in (self.domain, *self.issuers) else subject

    def subjects(self, username: str) -> tuple[str, ...]:
        """Return the subject with this user name, as a tuple of one or no element.

        >>> these = Usernames.among("broker.example", ["https://iam.example/cms"])
        >>> [these.subjects(each) for each in ("ann@broker.example", "ann@iam.example", "ann@x.example", "ann")]
        [('ann',), ('ann@https://iam.example/cms',), ('ann@x.example',), ()]
        """
        local, _, host = username.rpartition("@")
        issuer = self.issuers.get(host)
        meant = [username, local, *([f"{local}@{quote(issuer, safe=PLAIN)}"] if issuer else [])]
        return tuple(each for each in dict.fromkeys(meant) if each and self.of(each) == username)
