"""A parser of untrusted XML, which returns a small tree of the elements of interest. Pure.

DTDs and entities are refused. A document can still expand to many times its size, if every element repeats a
namespace's name of a million characters, or a tag has millions of attributes; so the expansion is limited too.
"""

from collections.abc import Callable, Mapping
from typing import Never
from xml.etree.ElementTree import Element
from xml.parsers import expat

from coalloc.errors import UsageError

__all__ = ["MAX_ELEMENTS", "parsed"]

MAX_ELEMENTS = 250_000
"""Maximum number of elements, and of attributes: 16 MiB of XML need at most 200 MB; enough for 1 TB in 4 MiB pieces."""
MAX_TAG = 256 * 1024
"""Maximum bytes of a tag, comment or processing instruction."""
MAX_NAMESPACE = 256
"""Maximum characters of a namespace's name."""
LARGER_PIECES = "ask for a Metalink with larger pieces, or give replica URLs"
PIECE = 64 * 1024
MANY_NAMES = 1_000

Shape = Mapping[str, frozenset[str]]
"""Child elements to keep, by their parent; both named as `{namespace}name`."""


def parsed(document: bytes, where: str, shape: Shape) -> tuple[Element, Mapping[Element, int]]:
    """Return the root element, with the descendants that are in `shape`, and the line of each element.

    :param where: name of the document in messages
    :param shape: elements to keep
    :raises UsageError: if the document is malformed, or exceeds a limit
    """
    builder = _TreeBuilder(where, shape)
    parser = expat.ParserCreate(namespace_separator="}", intern=builder.interned)
    parser.buffer_text = parser.ordered_attributes = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.StartNamespaceDeclHandler, parser.CharacterDataHandler = builder.namespace, builder.text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = builder.refuse_doctype
    builder.line = lambda: parser.CurrentLineNumber
    try:
        for start in range(0, len(document), PIECE):
            parser.Parse(document[start : start + PIECE])
            if min(start + PIECE, len(document)) - parser.CurrentByteIndex > MAX_TAG:
                builder.refuse(f"has a tag of more than {MAX_TAG} bytes")
        parser.Parse(b"", True)
    except (expat.ExpatError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
        raise UsageError(
            f"{where} is not a Metalink: {error}", "give a Metalink 4 file (RFC 5854) or replica URLs"
        ) from None
    return builder.root, builder.lines


class _TreeBuilder:
    def __init__(self, where: str, shape: Shape) -> None:
        self.root = Element("")
        self.lines: dict[Element, int] = {}
        self.line: Callable[[], int] = int
        self.interned: dict[str, str] = {}
        """Names interned by the parser, which never removes them; cleared when there are too many."""
        self._where = where
        self._shape = shape
        self._open: list[Element] = []
        self._ignored = self._elements = self._attributes = 0
        self._text: list[str] = []

    def start(self, tag: str, attributes: list[str]) -> None:
        self._elements += 1
        self._count_attributes(len(attributes) // 2)
        if self._elements > MAX_ELEMENTS:
            self.refuse(f"has more than {MAX_ELEMENTS} elements", LARGER_PIECES)
        if len(self.interned) > MANY_NAMES:
            self.interned.clear()
        tag = _full(tag)
        if self._ignored or (self._open and tag not in self._shape.get(self._open[-1].tag, ())):
            self._ignored += 1
            return
        given = zip(attributes[::2], attributes[1::2], strict=True)
        element = Element(tag, {name: value for name, value in given if "}" not in name})
        self.lines[element] = self.line()
        if self._open:
            self._open[-1].append(element)
        else:
            self.root = element
        self._open.append(element)
        self._text.clear()

    def end(self, tag: str) -> None:
        if self._ignored:
            self._ignored -= 1
            return
        element = self._open.pop()
        if not len(element):
            element.text = "".join(self._text)
        self._text.clear()

    def text(self, text: str) -> None:
        if not self._ignored:
            self._text.append(text)

    def namespace(self, prefix: str | None, name: str | None) -> None:
        self._count_attributes(1)
        if name and len(name) > MAX_NAMESPACE:
            self.refuse(f"has a namespace of more than {MAX_NAMESPACE} characters")

    def _count_attributes(self, count: int) -> None:
        self._attributes += count
        if self._attributes > MAX_ELEMENTS:
            self.refuse(f"has more than {MAX_ELEMENTS} attributes", LARGER_PIECES)

    def refuse_doctype(self, *_: object) -> None:
        raise UsageError(
            f"{self._where} declares a document type or entities, which is refused", "remove the <!DOCTYPE ...>"
        )

    def refuse(self, why: str, remedy: str = "give replica URLs instead") -> Never:
        raise UsageError(f"{self._where} {why}", remedy)


def _full(name: str) -> str:
    """Return an element's name from the parser in the form used by the tree.

    >>> _full("urn:x}file"), _full("file")
    ('{urn:x}file', 'file')
    """
    return f"{{{name}" if "}" in name else name
