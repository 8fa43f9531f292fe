"""Metalink 3 documents (metalinker.org), which MirrorBrain and others write, in the form of Metalink 4. Pure.

Version 3 wraps the files in <files>, a file's hashes in <verification>, and its URLs in <resources>. URLs have a
`preference` up to 100, where more is better, instead of a `priority`; the hashes of pieces may have numbers.
"""

from xml.etree.ElementTree import Element

from coalloc.util.counts import count

__all__ = ["CHILDREN", "NAMESPACE", "to_version_4"]

NAMESPACE = "http://www.metalinker.org/"
CHILDREN = {
    "metalink": ("files",),
    "files": ("file",),
    "file": ("size", "verification", "resources"),
    "verification": ("hash", "pieces"),
    "pieces": ("hash",),
    "resources": ("url",),
}
"""Child elements that are read, by their parent."""
WRAPPERS = ("files", "verification", "resources")
OTHERS = ("bittorrent", "metalink")
"""Types of URLs that lead to descriptions of the file, not to the file."""
BEST = 100


def to_version_4(root: Element, namespace: str) -> None:
    """Change a tree in place: its elements get the names, places and attributes of version 4.

    :param namespace: the namespace of version 4
    """
    for element in list(root.iter()):
        element[:] = _unwrapped(element)
    for element in root.iter():
        name = _name(element)
        element.tag = f"{{{namespace}}}{name}"
        if name == "url":
            _set_priority(element)
        elif name == "pieces":
            element[:] = sorted(element, key=_piece)


def _unwrapped(parent: Element) -> list[Element]:
    """Return the children, with those of wrappers in their place, and without URLs of other things."""
    children = [each for child in parent for each in (child if _name(child) in WRAPPERS else (child,))]
    return [child for child in children if _name(child) != "url" or child.get("type", "").lower() not in OTHERS]


def _name(element: Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _set_priority(url: Element) -> None:
    """Set the priority from the preference; one that is no number is kept, as the reader names it in its message."""
    preference = url.attrib.pop("preference", None)
    if preference is not None:
        number = count(preference.strip())
        url.set("priority", preference if number is None else str(max(1, BEST + 1 - number)))


def _piece(element: Element) -> int:
    return count(element.get("piece", "")) or 0
