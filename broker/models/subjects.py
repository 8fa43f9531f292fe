"""Subjects: the owners of tokens. No two people share a subject, whichever issuer named them.

The subject of a person named by an issuer is `SUB@ISSUER`: both in full, with separators percent-encoded, so that both
can be read back from it. Admins issue tokens to names of any other form. User names, of programs that know Globus, are
derived from subjects, and each belongs to one person.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, unquote, urlsplit

from broker.models.identities import number

__all__ = ["BROKERS", "CALLED", "LONGEST", "LONGEST_PART", "Foreign", "Usernames", "refusal", "reserved"]

BROKERS = frozenset({"broker", "broker.probes", "broker.reports", "coget-broker"})
"""Subjects of the broker itself: for its measurements, its posted reports, and its own actions."""
ANONYMOUS = "anonymous"
LONGEST_PART = 255
"""Most bytes of UTF-8 in a `sub` or an issuer; OpenID Connect allows a `sub` of as many ASCII characters."""
LONGEST = 2 * 3 * LONGEST_PART + 1
"""Most characters of a subject; there is a limit because databases use subjects in keys."""
LONGEST_CALLED = 200
CALLED = re.compile(rf"[A-Za-z0-9_.@:/+-]{{1,{LONGEST_CALLED}}}")
"""Syntax of subjects to which admins issue tokens."""
PLAIN = ":/+"
"""Characters that are not percent-encoded, besides letters, digits and `_.-~`."""
FOREIGN = re.compile(r"@https?:", re.IGNORECASE)


class Foreign(NamedTuple):
    """A person named by an issuer.

    :param sub: the issuer's name for the person
    :param issuer: URL of the issuer, exactly as it is configured
    """

    sub: str
    issuer: str

    @classmethod
    def of(cls, sub: object, issuer: str) -> Self:
        """Return the person with this `sub`. :raises ValueError: when it is not a valid `sub`; the error says why"""
        if not isinstance(sub, str) or not sub:
            raise ValueError("its sub is empty or not text")
        try:
            size = max(len(sub.encode()), len(issuer.encode()))
        except UnicodeEncodeError:
            raise ValueError("its sub has an invalid character") from None
        if size > LONGEST_PART:
            raise ValueError(f"its sub or its issuer is longer than {LONGEST_PART} bytes")
        return cls(sub, issuer)

    @classmethod
    def read(cls, subject: str) -> Self | None:
        """Return the person of a subject `SUB@ISSUER`; None for subjects of another form.

        >>> Foreign.read("a%40b@https://iam.example/"), Foreign.read("ann@iam.example")
        (Foreign(sub='a@b', issuer='https://iam.example/'), None)
        """
        sub, _, issuer = subject.partition("@")
        found = cls(unquote(sub), unquote(issuer))
        whole = sub and found.issuer.startswith(("http://", "https://"))
        return found if whole and str(found) == subject else None

    def former(self, host: str) -> str | None:
        """Return the person's subject in its older form, with only the host of the issuer; None if that is uncertain.

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
    """Return whether a name, in any case, is reserved: for the broker itself, or for callers without a token.

    >>> reserved("Anonymous"), reserved("broker"), reserved("brokers")
    (True, True, False)
    """
    return subject.casefold() in BROKERS | {ANONYMOUS}


def refusal(subject: str) -> str | None:
    """Return the reason why admins may not issue tokens to this subject; None if they may.

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
    """The user names of subjects for programs that know Globus, where a user name has a domain.

    :param domain: domain for subjects that have none
    :param issuers: the only issuer of each host; a person named by any other issuer has the whole subject as user name
    """

    domain: str
    issuers: Mapping[str, str]

    @classmethod
    def among(cls, domain: str, issuers: Iterable[str]) -> Self:
        """Return the user names for these issuers, of which those count whose host is neither shared nor the domain."""
        hosts: dict[str, set[str]] = {}
        for each in issuers:
            hosts.setdefault(urlsplit(each).hostname or "", set()).add(each)
        return cls(
            domain, {host: each for host, (each, *more) in hosts.items() if not more and host not in ("", domain)}
        )

    def of(self, subject: str) -> str:
        """Return the user name of a subject; no two subjects have the same.

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
        """Return the subjects that have this user name: one, or none.

        >>> these = Usernames.among("broker.example", ["https://iam.example/cms"])
        >>> [these.subjects(each) for each in ("ann@broker.example", "ann@iam.example", "ann@x.example", "ann")]
        [('ann',), ('ann@https://iam.example/cms',), ('ann@x.example',), ()]
        """
        local, _, host = username.rpartition("@")
        issuer = self.issuers.get(host)
        meant = [username, local, *([f"{local}@{quote(issuer, safe=PLAIN)}"] if issuer else [])]
        return tuple(each for each in dict.fromkeys(meant) if each and self.of(each) == username)
