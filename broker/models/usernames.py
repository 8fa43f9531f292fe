"""User names: each belongs to one person, and is derived from the subject."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

from broker.models.subjects import PLAIN, Foreign

__all__ = ["Usernames"]


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
