"""Signing policies: the names that an authority may sign, from `HASH.signing_policy` files (EACL). No I/O.

    access_id_CA   X509    '/C=CH/O=Grid/CN=CA'
    pos_rights     globus  CA:sign
    cond_subjects  globus  '"/C=CH/O=Grid/*" "/O=Other/CN=host/?.example"'

A file may have entries for several authorities. `*` stands for any characters, `?` for one. A file with a line that
cannot be parsed allows nothing, as that line may be a condition.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

__all__ = ["may_sign"]

LINE = re.compile(r"^[ \t]*(\w+)[ \t]+(\S+)[ \t]+('(?:\\.|[^'\\])*'|[^\n]*?)[ \t\r]*$", re.MULTILINE)
"""Keyword, defining authority, value; a value in single quotes may continue in the next line."""
KEYWORD = re.compile(r"access_id_\w+|pos_rights|neg_rights|cond_\w+")
SPELLINGS = (
    (re.compile(r"/(?:e|email|emailaddress)=", re.IGNORECASE), "/emailAddress="),
    (re.compile(r"/(?:uid|userid)=", re.IGNORECASE), "/UID="),
)
"""Attributes with several spellings: pattern, and the spelling used for comparison."""


@dataclass
class _Right:
    """A grant or denial of the right to sign, for subjects that match one of the patterns, or all if there are none."""

    positive: bool
    patterns: list[str] = field(default_factory=list)
    unknown: bool = False
    """Whether it has a condition that is not supported here."""

    def fits(self, subject: str) -> bool:
        return not self.patterns or any(_fits(subject, pattern) for pattern in self.patterns)


def may_sign(policy: str, authority: str, subject: str) -> bool:
    """Return whether a policy lets an authority sign a subject; both names are in Globus notation.

    >>> said = '''access_id_CA X509 '/O=Grid/CN=CA'
    ... pos_rights globus CA:sign
    ... cond_subjects globus '"/O=Grid/*" "/O=Host/CN=?"' '''
    >>> [may_sign(said, "/O=Grid/CN=CA", name) for name in ("/O=Grid/CN=a", "/O=Host/CN=a", "/O=Host/CN=ab")]
    [True, True, False]
    >>> may_sign(said, "/O=Grid/CN=Other CA", "/O=Grid/CN=a")
    False
    """
    if not _is_read(policy):
        return False
    fitting = [right for right in _rights(policy, authority) if right.fits(_plain(subject))]
    granted = any(right.positive and not right.unknown for right in fitting)
    return granted and all(right.positive for right in fitting)


def _is_read(policy: str) -> bool:
    """Return whether every line of a policy can be parsed as a statement or comment."""
    others = (line.strip() for line in LINE.sub("", policy.removeprefix("\ufeff")).split("\n"))
    known = all(KEYWORD.fullmatch(keyword) for keyword, _, _ in LINE.findall(policy))
    return known and not any(line and not line.startswith("#") for line in others)


def _rights(policy: str, authority: str) -> Iterator[_Right]:
    """Yield a policy's grants and denials of the right to sign for an authority."""
    right: _Right | None = None
    about = False
    for keyword, kind, value in LINE.findall(policy):
        if keyword.startswith("cond_"):
            if right and keyword == "cond_subjects":
                right.patterns += map(_plain, _patterns(value))
            elif right:
                right.unknown = True
            continue
        if right:
            yield right
            right = None
        if keyword.startswith("access_id_"):
            about = keyword == "access_id_CA" and kind == "X509" and _plain(_bare(value)) == _plain(authority)
        elif about and keyword in ("pos_rights", "neg_rights") and _bare(value) == "CA:sign":
            right = _Right(keyword == "pos_rights")
    if right:
        yield right


def _patterns(value: str) -> list[str]:
    bare = value[1:-1] if value[:1] == "'" else value
    return [_decoded(each) for each in re.findall(r'"([^"]*)"', bare)] or [_bare(value)]


def _bare(value: str) -> str:
    """Return a value without quotes."""
    return _decoded(value[1:-1] if value[:1] in "'\"" and value[-1:] == value[:1] else value)


def _decoded(text: str) -> str:
    r"""Decode a string whose bytes may be written as \xC3, and quotes as \'."""
    raw = re.sub(rb"\\x([0-9A-Fa-f]{2})", lambda found: bytes([int(found[1], 16)]), text.encode())
    return raw.decode(errors="replace").replace("\\'", "'")


def _plain(name: str) -> str:
    """Return a name in the form used for comparison."""
    for spelling, plain in SPELLINGS:
        name = spelling.sub(plain, name)
    return name


def _fits(subject: str, pattern: str) -> bool:
    """Return whether a subject matches a pattern."""
    glob = "".join({"*": ".*", "?": "."}.get(letter) or re.escape(letter) for letter in re.sub(r"\*+", "*", pattern))
    return re.fullmatch(glob, subject, re.DOTALL) is not None
