"""Paths of collections as users write them, and as servers have them; pure. No path leads out of its collection."""

from posixpath import join, normpath

from broker.errors import Invalid

__all__ = ["below", "led", "normal"]

LONGEST = 4096


def normal(path: str) -> str:
    """Return a path within a collection, from its root.

    `~` and `/~/` are the root, `..` is resolved, and a final slash stays.

    :raises Invalid: when it leads out of the collection, is too long, or has characters that cannot be printed

    >>> normal("~/data/../run 1/"), normal("/~/x"), normal("a//b/./c"), normal("")
    ('/run 1/', '/x', '/a/b/c', '/')
    """
    if len(path) > LONGEST or not path.isprintable():
        raise Invalid(f"{path[:80]!r} is not a path", "name one of at most 4096 characters that can all be printed")
    parts: list[str] = []
    for part in path.removeprefix("/").split("/"):
        if part in ("", ".") or (part == "~" and not parts):
            continue
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
        else:
            raise Invalid(f"{path} leads out of the collection", "begin at its root: /")
    last = path.rpartition("/")[2]
    folder = "/" if parts and last in ("", ".", "..", "~") else ""
    return "/" + "/".join(parts) + folder


def below(base: str, path: str) -> str:
    """Return the path at a server of a normal path in a collection.

    :param base: folder of the collection at the server

    >>> below("/data/", "/run 1/x"), below("/", "/")
    ('/data/run 1/x', '/')
    """
    return base.rstrip("/") + path


def led(path: str, target: str) -> str | None:
    """Return the path to which a symbolic link at a normal path leads; None if it leaves the collection.

    :param target: target of the link, relative to the link, or absolute from the collection's root

    >>> led("/a/b", "../c"), led("/a/b", "../../c"), led("/a/b", "/c/")
    ('/c', None, '/c')
    """
    if target.startswith("/"):
        return "/" + normpath(target).lstrip("/")
    whole = normpath(join(path.strip("/"), "..", target))
    if whole == ".." or whole.startswith("../"):
        return None
    return "/" if whole == "." else f"/{whole}"
