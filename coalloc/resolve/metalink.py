"""Reader of Metalink 4 (RFC 5854) and Metalink 3 documents, and writer of version 4; other modules fetch them.

The reader is hardened: it refuses DTDs and entities, and limits the size and the number of elements. It reads a file's
name, size, hash, pieces, and url with priority and location. It ignores other elements (metaurl, signature, identity,
...) and hashes of algorithms that `checksums` does not support.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from coalloc.errors import UsageError
from coalloc.model.checksums import Checksum, PieceHashes
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.resolve import file_names, metalink3, replica_urls
from coalloc.resolve.xml_tree import parsed
from coalloc.safe_text import escaped, without_login
from coalloc.util import checksums
from coalloc.util.counts import LARGEST, count

__all__ = ["MAX_BYTES", "read", "write"]

NAMESPACE = "urn:ietf:params:xml:ns:metalink"
MAX_BYTES = 16 * 1024 * 1024
MOST_REPLICAS = 1_000
"""Maximum number of replicas of a file."""
WORST_PRIORITY = 999_999
CHILDREN = {
    "metalink": ("file",),
    "file": ("size", "hash", "pieces", "url"),
    "pieces": ("hash",),
}
SHAPE = {
    f"{{{namespace}}}{tag}": frozenset(f"{{{namespace}}}{child}" for child in children)
    for namespace, shape in ((NAMESPACE, CHILDREN), (metalink3.NAMESPACE, metalink3.CHILDREN))
    for tag, children in shape.items()
}
"""Child elements that are read, by their parent."""


def read(document: bytes, where: str, catalogue: bool = False) -> list[ReplicaSet]:
    """Return the files of a Metalink with their replicas, in the document's order.

    :param where: name of the document in messages: a path, or a URL without password
    :param catalogue: whether it is the answer of a catalogue: then there may be no file, and files without replicas,
        and the slash at the beginning of a name is left out
    :raises UsageError: if the document is malformed or unsafe; the message names line and element
    """
    return _Reader(where, catalogue).read(document)


class _Reader:
    """A reader of one document; it keeps the document's name and the lines of the elements for messages."""

    def __init__(self, where: str, catalogue: bool) -> None:
        self._where = where
        self._catalogue = catalogue
        self._lines: Mapping[Element, int] = {}

    def read(self, document: bytes) -> list[ReplicaSet]:
        root = self._tree(document)
        if root.tag == f"{{{metalink3.NAMESPACE}}}metalink":
            metalink3.to_version_4(root, NAMESPACE)
        if root.tag != _tag("metalink"):
            raise self._wrong(root, f"it is not a Metalink but a <{root.tag}>", "give a Metalink file or replica URLs")
        files = [self._file(element) for element in root.findall(_tag("file"))]
        if not (files or self._catalogue):
            raise self._wrong(root, "it has no <file>")
        if len({file.name for file in files}) < len(files):
            raise self._wrong(root, "two files have the same name")
        return files

    def _tree(self, document: bytes) -> Element:
        if len(document) > MAX_BYTES:
            raise UsageError(
                f"{self._where} is larger than {MAX_BYTES} bytes, too large for a Metalink",
                "give a Metalink 4 file or replica URLs",
            )
        root, self._lines = parsed(document, self._where, SHAPE)
        return root

    def _file(self, element: Element) -> ReplicaSet:
        size = self._size(element)
        return ReplicaSet(
            name=self._name(element),
            replicas=self._replicas(element),
            size=size,
            checksums=self._checksums(element),
            pieces=self._pieces(element, size),
        )

    def _name(self, element: Element) -> str:
        name = element.get("name", "")
        if self._catalogue:
            name = name.removeprefix("/")
        if reason := file_names.why_unsafe(name):
            raise self._wrong(
                element, f"the file name {name[:200]!r} {reason}", "do not use a Metalink that you do not trust"
            )
        return name

    def _size(self, element: Element) -> int | None:
        size = element.find(_tag("size"))
        return None if size is None else self._integer(size, _text(size), 0, LARGEST)

    def _checksums(self, element: Element) -> tuple[Checksum, ...]:
        found: dict[str, Checksum] = {}
        for child in element.findall(_tag("hash")):
            checksum = self._hash(child, self._attribute(child, "type"))
            if checksum and found.setdefault(checksum.algorithm, checksum) != checksum:
                raise self._wrong(child, f"a second, different {checksum.algorithm} hash of the file")
        return tuple(found.values())

    def _hash(self, element: Element, kind: str) -> Checksum | None:
        """Return the hash in `element`; None if its algorithm is not supported."""
        if checksums.normalise(kind) is None:
            return None
        try:
            return checksums.checksum(kind, _text(element))
        except UsageError as error:
            raise self._wrong(element, error.message) from None

    def _pieces(self, element: Element, size: int | None) -> PieceHashes | None:
        """Return the hashes of the pieces; with several algorithms, those with the longest values."""
        found = [pieces for child in element.findall(_tag("pieces")) if (pieces := self._piece_hashes(child, size))]
        return max(found, key=lambda pieces: checksums.ALGORITHMS[pieces.algorithm], default=None)

    def _piece_hashes(self, element: Element, size: int | None) -> PieceHashes | None:
        kind = self._attribute(element, "type")
        length = self._integer(element, self._attribute(element, "length"), 1, LARGEST)
        hashes = [self._hash(child, kind) for child in element.findall(_tag("hash"))]
        expected = len(hashes) if size is None else -(-size // length)
        if len(hashes) != expected:
            what = f"{len(hashes)} hashes, where {size} bytes in pieces of {length} need {expected}"
            raise self._wrong(element, what)
        values = tuple(checksum.value for checksum in hashes if checksum)
        return PieceHashes(str(checksums.normalise(kind)), length, values) if values else None

    def _replicas(self, element: Element) -> tuple[Replica, ...]:
        found: dict[str, Replica] = {}
        for child in element.findall(_tag("url")):
            replica = self._replica(child)
            found.setdefault(replica.url, replica)
            if len(found) > MOST_REPLICAS:
                raise self._wrong(child, f"the file has more than {MOST_REPLICAS} replicas", "leave out some of them")
        if not (found or self._catalogue):
            raise self._wrong(element, "it has no <url>", "ask for a Metalink that names ftp, gsiftp or http replicas")
        return tuple(found.values())

    def _replica(self, element: Element) -> Replica:
        url, priority, location = _text(element), element.get("priority"), element.get("location")
        try:
            if not replica_urls.is_opaque(url):
                replica_urls.check(url)
        except UsageError as error:
            raise self._wrong(element, error.message) from None
        return Replica(
            url,
            None if priority is None else self._integer(element, priority, 1, WORST_PRIORITY),
            location.strip().lower() if location else None,
        )

    def _attribute(self, element: Element, name: str) -> str:
        value = element.get(name)
        if value is None:
            raise self._wrong(element, f"the attribute '{name}' is missing")
        return value

    def _integer(self, element: Element, text: str, least: int, most: int) -> int:
        value = count(text)
        if value is not None and least <= value <= most:
            return value
        raise self._wrong(element, f"{text[:40]!r} is not a whole number from {least} to {most}")

    def _wrong(self, element: Element, what: str, remedy: str = "ask its author for a correct one") -> UsageError:
        tag = str(element.tag).rpartition("}")[2]
        return UsageError(f"the Metalink {self._where}, line {self._lines[element]}, <{tag}>: {what}", remedy)


def write(files: Iterable[ReplicaSet], published: datetime) -> str:
    """Return a Metalink 4 document of these files, without passwords in URLs; `published` has a time zone."""
    root = Element("metalink", xmlns=NAMESPACE)
    _add(root, "generator", "coget")
    _add(root, "published", f"{published.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}")
    for file in files:
        element = SubElement(root, "file", name=file.name)
        if file.size is not None:
            _add(element, "size", str(file.size))
        for checksum in file.checksums:
            _add(element, "hash", checksum.value, type=_type(checksum.algorithm))
        if file.pieces:
            _add_pieces(element, file.pieces)
        _add_replicas(element, file.replicas)
    indent(root)
    written = "\n".join(map(_plain, tostring(root, encoding="unicode").split("\n")))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{written}\n'


def _plain(line: str) -> str:
    """Replace characters that a terminal would interpret, or not show, with XML character references."""
    return line if escaped(line) == line else "".join(c if escaped(c) == c else f"&#{ord(c)};" for c in line)


def _add_pieces(parent: Element, pieces: PieceHashes) -> None:
    element = SubElement(parent, "pieces", length=str(pieces.length), type=_type(pieces.algorithm))
    for value in pieces.values:
        _add(element, "hash", value)


def _add_replicas(parent: Element, replicas: Sequence[Replica]) -> None:
    for replica in replicas:
        attributes = {"location": replica.location, "priority": replica.priority}
        given = {name: str(value) for name, value in attributes.items() if value is not None}
        _add(parent, "url", without_login(replica.url), **given)


def _add(parent: Element, tag: str, text: str, **attributes: str) -> None:
    SubElement(parent, tag, attributes).text = text


def _text(element: Element) -> str:
    return (element.text or "").strip()


def _tag(name: str) -> str:
    return f"{{{NAMESPACE}}}{name}"


def _type(algorithm: str) -> str:
    """Return an algorithm's name as RFC 5854 writes it.

    >>> _type("sha256"), _type("md5")
    ('sha-256', 'md5')
    """
    return re.sub("^sha", "sha-", algorithm)
