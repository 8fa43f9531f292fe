"""Paths as text that both databases can store, with a distinct text for every file name. Pure."""

import re

__all__ = ["kept", "restored"]

SIGN = "\uf8ff"
"""The escape sign in front of characters that a database cannot store; it is a private-use character."""
ODD = re.compile("[\0\ud800-\udfff\uf8ff]")
KEPT = re.compile(f"{SIGN}([0-9a-f]{{4}})")


def kept(path: str) -> str:
    """Return the text under which a path is stored.

    A name that is not valid UTF-8 has surrogates for its bytes; these, NUL and the sign itself are escaped by the sign.

    >>> ascii(kept("caf\\udce9")), kept("x")
    ("'caf\\\\uf8ffdce9'", 'x')
    """
    return ODD.sub(lambda found: f"{SIGN}{ord(found[0]):04x}", path)


def restored(text: str) -> str:
    """Return the path that is stored as this text.

    >>> restored(kept("caf\\udce9\\uf8ff")) == "caf\\udce9\\uf8ff"
    True
    """
    return KEPT.sub(lambda found: chr(int(found[1], 16)), text) if SIGN in text else text
