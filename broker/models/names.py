"""What names may look like: one strict rule, for all that callers send.

Letters, digits and a few marks; each component begins with a letter, a digit or `_`, so that nothing leads out of a
folder, hides, or is read as an option; nothing that means something to HTML, XML, SQL or a shell gets in.
"""

from typing import Annotated, NamedTuple, Self

from pydantic import AfterValidator, StringConstraints

from broker.models.subjects import LONGEST
from coalloc.urls import redacted_text

__all__ = [
    "Beginning",
    "Called",
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
    "Told",
    "Whereto",
    "Who",
    "split",
]

_PART = r"[A-Za-z0-9_][A-Za-z0-9_.+=@,~-]*"
_SCOPE = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
_NAME = rf"/?{_PART}(?:/{_PART})*"

Named = Annotated[str, StringConstraints(pattern=rf"^{_SCOPE}$")]
"""Of a site or an endpoint."""
Did = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE}:)?{_NAME}$", max_length=565)]
"""A dataset: its name, with its scope and a colon before it if it has one."""
Beginning = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE}:)?[A-Za-z0-9_.+=@,~/-]*$", max_length=565)]
"""How names of datasets begin: of a scope those after its colon."""
FileClass = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+/-]{0,64}$")]
"""What tells files apart that are served differently: a type, or the volume where they are."""
Key = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/+=-]{1,128}$")]
"""What a caller tells its observations apart by."""


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
"""What people and programs say of a thing."""
Told = Annotated[Remark, AfterValidator(lambda text: redacted_text(text)[:500])]
"""What a program says that went wrong, or of a source: older ones repeat URLs with their keys."""
Called = Annotated[str, StringConstraints(max_length=500), AfterValidator(_one_line), AfterValidator(_trimmed)]
"""What people call a thing that they make."""
Thing = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_one_line)]
"""What people and programs call a thing, whatever that is: it is only shown."""
Who = Annotated[str, StringConstraints(max_length=LONGEST), AfterValidator(_one_line)]
"""Of whom something is asked."""
ReplicaPath = Annotated[str, StringConstraints(min_length=1, max_length=2000), AfterValidator(_printable)]
"""Where a server has a file: looser, for files are called as they are; percent-encoded in URLs."""
_ADDRESS = r"[a-z][a-z0-9+.-]{0,20}://[A-Za-z0-9.:\[\]_-]{1,255}"
SourceName = Annotated[str, StringConstraints(pattern=rf"^(?:{_ADDRESS}|{_SCOPE})$")]
"""Where bytes come from: `SCHEME://HOST[:PORT]`, or an endpoint's name."""
SinkName = Annotated[str, StringConstraints(pattern=rf"^(?:{_SCOPE})?$")]
"""Where bytes go: a site, or any other place that callers agree on; empty when they do not say."""
_IPV6 = r"[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:.]{1,42}"
Whereto = Annotated[str, StringConstraints(pattern=rf"^(?:{_ADDRESS}|{_SCOPE}|{_IPV6})?$")]
"""The same, or the address of a server there, `SCHEME://HOST[:PORT]`; or of a client by IPv6, as servers log it."""


class Parts(NamedTuple):
    """A dataset's scope, empty if it has none, and its name."""

    scope: str
    name: str

    @classmethod
    def of(cls, did: str) -> Self:
        """Of what was validated as a `Did`."""
        scope, _, name = did.rpartition(":")
        return cls(scope, name)

    def __str__(self) -> str:
        return f"{self.scope}:{self.name}" if self.scope else self.name


split = Parts.of
