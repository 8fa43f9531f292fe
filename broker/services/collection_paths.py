"""Paths in collections: normal forms that do not leave the collection, and their paths at servers."""

from posixpath import join, normpath

from broker.errors import Invalid

__all__ = ["below", "led", "normal"]

LONGEST = 4096


def normal(path: str) -> str:
    """Return the normal form of a path in a collection, from the collection's root.

    `~` and `/~/` are the root, `..` is resolved, and a final slash is kept.

    :raises Invalid: when the path leaves the collection, is too long, or has unprintable characters

    >>> normal("~/data/../run 1/"), normal("/~/x"), normal("a//b/./c"), normal("")
    ('/run 1/', '/x', '/a/b/c', '/')
    """
    if len(path) > LONGEST or not path.isprintable():
        raise Invalid(f"{path[:80]!r} is not a path", "give one of at most 4096 printable characters")
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
    """Return the path at the server for a normal path in a collection.

    :param base: directory of the collection at the server

    >>> below("/data/", "/run 1/x"), below("/", "/")
    ('/data/run 1/x', '/')
    """
    return base.rstrip("/") + path


def led(path: str, target: str) -> str | None:
    """Return the path of a symbolic link's target; None if the target is outside the collection.

    :param path: normal path of the link
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
