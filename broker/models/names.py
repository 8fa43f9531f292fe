"""The syntax of all names that callers send.

Names consist of letters, digits and a few marks. Each component begins with a letter, a digit or `_`, so that no name
leaves a directory, is a hidden file, or looks like an option. No character has a meaning in HTML, XML, SQL or a shell.
"""

from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, StringConstraints

from broker.models.subjects import LONGEST
from coalloc.safe_text import redacted_text

__all__ = [
    "Beginning",
    "Called",
    "ClientMessage",
    "Did",
    "FileClass",
    "Key",
    "Named",
    "Parts",
    "Remark",
    "ReplicaPath",
    "SinkName",
    "SourceName",
    "Thing",
    "Whereto",
    "Who",
    "split",
]

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+=@,~-]*"
_SCOPE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_NAME = rf"/?{_PART}(?:/{_PART})*"

Named = Annotated[str, StringConstraints(pattern=rf"^{_SCOPE}$")]
"""The name of a site or an endpoint."""
Did = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE}:)?{_NAME}$", max_length=565)]
"""The full name of a dataset: its name, preceded by its scope and a colon if it has a scope."""
Beginning = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE}:)?[A-Za-z0-9_.+=@,~/-]*$", max_length=565)]
"""A prefix of names of datasets; with a scope and a colon, of names in that scope."""
FileClass = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+/-]{0,64}$")]
"""A class of files with similar transfer rates, such as a file type or a storage volume."""
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/+=-]{1,128}$")]
"""A caller's own id of an observation."""


def _printable(text: str) -> str:
    if not text.isprintable() or "\\" in text or not {".", ".."}.isdisjoint(text.split("/")):
        raise ValueError("has a backslash, a character that cannot be printed, or a '.' or '..' component")
    return text


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has a character that cannot be printed")
    return text


def _trimmed(text: str) -> str:
    if text != text.strip():
        raise ValueError("has a blank at its beginning or end")
    return text


Remark = Annotated[str, StringConstraints(max_length=500), AfterValidator(_one_line)]
"""A user's or a program's remark about an object."""
ClientMessage = Annotated[Remark, AfterValidator(lambda text: redacted_text(text)[:500])]
"""A program's message about an error or a source, without secrets, which older programs leave in URLs."""
Called = Annotated[str, StringConstraints(max_length=500), AfterValidator(_one_line), AfterValidator(_trimmed)]
"""A user's name for an object that they create."""
Thing = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_one_line)]
"""A user's or a program's name for an object, which is only displayed."""
Who = Annotated[str, StringConstraints(max_length=LONGEST), AfterValidator(_one_line)]
"""A subject as a query parameter."""
ReplicaPath = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_printable)]
"""The path of a file at a server, not percent-encoded; it may have any printable character, since the file exists."""
_ADDRESS = r"[a-z][a-z0-9+.-]{0,20}://[A-Za-z0-9.:\[\]_-]{1,255}"
SourceName = Annotated[str, StringConstraints(pattern=rf"^(?:{_ADDRESS}|{_SCOPE})$")]
"""The source of bytes: `SCHEME://HOST[:PORT]`, or an endpoint's name."""
SinkName = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE})?$")]
"""The sink of bytes: a site, or another name that callers agree on; empty if not given."""
_IPV6 = r"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,42}"
Whereto = Annotated[str, StringConstraints(pattern=rf"^(?:{_ADDRESS}|{_SCOPE}|{_IPV6})?$")]
"""A `SinkName`, a server's address (`SCHEME://HOST[:PORT]`), or the IPv6 address of a client, as servers log it."""


class Parts(NamedTuple):
    """A dataset's scope, empty if it has none, and its name."""

    scope: str
    name: str

    @classmethod
    def of(cls, did: str) -> Self:
        """Split a name that was validated as a `Did`."""
        scope, _, name = did.rpartition(":")
        return cls(scope, name)

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}" if self.scope else self.name


split = Parts.of
