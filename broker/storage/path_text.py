"""Paths as text that both databases take, in which each name of a file stays apart from all others. Pure."""

import re

__all__ = ["kept", "restored"]

SIGN = "\uf8ff"
"""Stands in a path before what no database takes: a character for private use."""
ODD = re.compile("[\0\ud800-\udfff\uf8ff]")
KEPT = re.compile(f"{SIGN}([0-9a-f]{{4}})")


def kept(path: str) -> str:
    """Return the text that a path is kept as.

    A name that is no UTF-8 has surrogates for its bytes; these, NUL and the sign itself follow a sign.

    >>> ascii(kept("caf\\udce9")), kept("x")
    ("'caf\\\\uf8ffdce9'", 'x')
    """
    return ODD.sub(lambda found: f"{SIGN}{ord(found[0]):04x}", path)


def restored(text: str) -> str:
    """Return the path that is kept as a text.

    >>> restored(kept("caf\\udce9\\uf8ff")) == "caf\\udce9\\uf8ff"
    True
    """
    return KEPT.sub(lambda found: chr(int(found[1], 16)), text) if SIGN in text else text
