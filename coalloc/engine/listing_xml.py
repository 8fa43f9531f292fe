"""The base of the parsers of listings in XML, which are not to be trusted. No I/O.

DTDs and entities are refused, and the bytes of a listing and of each tag are limited.
"""

from abc import ABC, abstractmethod
from typing import Never
from xml.parsers import expat

from coalloc.errors import LimitExceeded

__all__ = ["MAX_TAG", "ListingParser"]

PIECE, MAX_TAG = 64 * 1024, 64 * 1024
"""Bytes that are parsed at once, after which a tag is measured; and maximum bytes of a tag."""


class ListingParser(ABC):
    """The parser of a listing, which is fed to it in pieces. A subclass takes the elements and their texts.

    :param longest: maximum bytes of the listing
    :param separator: the character between an element's namespace and its name; None if namespaces are not resolved
    """

    def __init__(self, longest: int, separator: str | None = None) -> None:
        self._longest = longest
        self._fed = 0
        self._parser = parser = expat.ParserCreate(namespace_separator=separator, intern={})
        parser.buffer_text = parser.ordered_attributes = True
        parser.StartElementHandler, parser.EndElementHandler = self._start, self._end
        parser.CharacterDataHandler = self._take_text
        parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = self._refuse_doctype

    def _parse(self, data: bytes) -> None:
        """Parse the next bytes of the listing."""
        for start in range(0, len(data), PIECE):
            self._parse_piece(data[start : start + PIECE])

    def _finish(self) -> None:
        """Parse the end of the listing, which is refused if it ended too early."""
        self._parse_piece(b"", final=True)

    def _parse_piece(self, piece: bytes, final: bool = False) -> None:
        self._fed += len(piece)
        if self._fed > self._longest:
            raise self._too_long(f"{self._longest} bytes")
        try:
            self._parser.Parse(piece, final)
        except (expat.ExpatError, ValueError, LookupError) as error:  # ValueError, LookupError: encodings
            self._refuse(str(error))
        if self._fed - self._parser.CurrentByteIndex > MAX_TAG:
            self._refuse(f"it has a tag of more than {MAX_TAG} bytes")

    def _refuse_doctype(self, *_: object) -> None:
        self._refuse("it declares a document type or entities")

    @abstractmethod
    def _start(self, tag: str, attributes: list[str]) -> None:
        """Take the beginning of an element; names and values of its attributes take turns."""

    @abstractmethod
    def _take_text(self, text: str) -> None:
        """Take a part of the innermost open element's text."""

    @abstractmethod
    def _end(self, tag: str) -> None:
        """Take the end of the innermost open element."""

    @abstractmethod
    def _refuse(self, why: str) -> Never:
        """Raise the error of a listing that cannot be read, for this reason."""

    @abstractmethod
    def _too_long(self, what: str) -> LimitExceeded:
        """Return the error of a listing with more than so much."""
