"""Subjects: whom a token is of. No two people are one subject, whoever named them.

Of somebody whom an issuer has named it is `SUB@ISSUER`: both whole, with what could divide them percent-encoded, so
that each can be read again from it. What an admin issues a token to is any other name.
"""

import re
from typing import NamedTuple, Self
from urllib.parse import quote, unquote

from broker.models.identities import number

__all__ = ["BROKERS", "CALLED", "LONGEST", "LONGEST_PART", "Foreign", "refusal", "reserved"]

BROKERS = frozenset({"broker", "broker.probes", "broker.reports", "coget-broker"})
"""As whom the broker itself keeps what it measures, has sent and does."""
ANONYMOUS = "anonymous"
LONGEST_PART = 255
"""Bytes of UTF-8 of a `sub`, or an issuer; OpenID Connect allows a `sub` as many characters of ASCII."""
LONGEST = 2 * 3 * LONGEST_PART + 1
"""Characters of a subject: databases have it in keys."""
LONGEST_CALLED = 200
CALLED = re.compile(rf"[A-Za-z0-9_.@:/+-]{{1,{LONGEST_CALLED}}}")
"""To whom an admin issues tokens."""
PLAIN = ":/+"
"""What is kept as it is, beside letters, digits and `_.-~`."""
FOREIGN = re.compile(r"@https?:", re.IGNORECASE)


class Foreign(NamedTuple):
    """Somebody whom an issuer has named.

    :param sub: as the issuer calls them
    :param issuer: its URL, exactly as it is configured
    """

    sub: str
    issuer: str

    @classmethod
    def of(cls, sub: object, issuer: str) -> Self:
        """:raises ValueError: saying why this is nobody"""
        if not isinstance(sub, str) or not sub:
            raise ValueError("its sub is empty, or no text")
        try:
            size = max(len(sub.encode()), len(issuer.encode()))
        except UnicodeEncodeError:
            raise ValueError("its sub has what is no character") from None
        if size > LONGEST_PART:
            raise ValueError(f"its sub or its issuer is longer than {LONGEST_PART} bytes")
        return cls(sub, issuer)

    @classmethod
    def read(cls, subject: str) -> Self | None:
        """Whom an issuer has named so; None for other subjects.

        >>> Foreign.read("a%40b@https://iam.example/"), Foreign.read("ann@iam.example")
        (Foreign(sub='a@b', issuer='https://iam.example/'), None)
        """
        sub, _, issuer = subject.partition("@")
        found = cls(unquote(sub), unquote(issuer))
        whole = sub and found.issuer.startswith(("http://", "https://"))
        return found if whole and str(found) == subject else None

    def former(self, host: str) -> str | None:
        """What they were called before subjects had the whole issuer, by the one at a host; None if that is not sure.

        >>> Foreign("ann", "https://iam.example/").former("iam.example"), Foreign("a_nn", "").former("iam.example")
        ('ann@iam.example', None)
        """
        name = f"{self.sub}@{host}"
        sure = CALLED.fullmatch(name) and "_" not in self.sub and len(name) < LONGEST_CALLED
        return name if sure else None

    def __str__(self) -> str:
        """The subject.

        >>> str(Foreign("a lice", "https://iam.example/cms")), str(Foreign("a_lice", "https://iam.example/cms"))
        ('a%20lice@https://iam.example/cms', 'a_lice@https://iam.example/cms')
        """
        return f"{quote(self.sub, safe=PLAIN)}@{quote(self.issuer, safe=PLAIN)}"


def reserved(subject: str) -> bool:
    """Whether nobody may be called so, however it is written: the broker is, or who has no token.

    >>> reserved("Anonymous"), reserved("broker"), reserved("brokers")
    (True, True, False)
    """
    return subject.casefold() in BROKERS | {ANONYMOUS}


def refusal(subject: str) -> str | None:
    """Why an admin may not issue tokens to this subject; None if they may.

    >>> refusal("ann@iam.example"), refusal("ann@https://iam.example/")
    (None, 'is as identity providers name people')
    """
    if not CALLED.fullmatch(subject):
        return f"is not up to {LONGEST_CALLED} letters, digits and _.@:/+-"
    if reserved(subject):
        return "is reserved"
    if FOREIGN.search(subject):
        return "is as identity providers name people"
    if number(subject) is not None:
        return "is a UUID, as identities are called by"
    return None
