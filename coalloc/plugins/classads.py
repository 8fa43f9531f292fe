"""HTCondor's ClassAds in their new syntax, as far as file transfer plugins need them: literals only. Pure.

[ Url = "gsiftp://a/x"; LocalFileName = "/scratch/x" ][ Url = ... ]
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

__all__ = ["AdError", "Value", "read_ads", "write_ad"]

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Mapping[str, Value] | None"

TOKENS = re.compile(
    r"""
    \s+ | //[^\n]* | /\*.*?\*/
    | (?P<string> "(?:[^"\\]|\\.)*" )
    | (?P<number> [+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? )
    | (?P<name> [A-Za-z_][\w.]* | '(?:[^'\\]|\\.)*' )
    | (?P<sign> . )
    """,
    re.VERBOSE | re.DOTALL,
)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
WORDS: Mapping[str, Value] = {"true": True, "false": False, "undefined": None, "error": None}
OPEN, CLOSED = "[{(", "]})"

Token = tuple[str, str]


class AdError(ValueError):
    """A text that is not a sequence of ClassAds."""


def read_ads(text: str) -> list[dict[str, Value]]:
    """Return the ads in a text, with the names of attributes in lower case; expressions are None.

    :raises AdError: if the text is malformed

    >>> read_ads('[ Url = "a\\\\"b"; Size = 3; Ok = TRUE; L = { 1.5, [ x = 2 ] } ][ Other = f(1; 2) + 3 ]')
    [{'url': 'a"b', 'size': 3, 'ok': True, 'l': [1.5, {'x': 2}]}, {'other': None}]
    """
    reader = _AdReader(text)
    ads = []
    while reader.next[1]:
        ads.append(reader.ad())
    return ads


def write_ad(ad: Mapping[str, Value]) -> str:
    """Return an ad as text, one attribute per line.

    >>> print(write_ad({"A": 'x"y', "B": [1.0, {"C": True}], "D": None}))
    [
      A = "x\\"y";
      B = { 1.0, [ C = true ] };
      D = undefined
    ]
    """
    lines = [f"  {name} = {_text(value)}" for name, value in ad.items()]
    return "[\n" + ";\n".join(lines) + "\n]"


def _text(value: Value) -> str:
    match value:
        case None:
            return "undefined"
        case bool():
            return "true" if value else "false"
        case str():
            return '"' + re.sub(r'["\\\x00-\x1f\x7f]', _escaped, value.replace("\0", "")) + '"'
        case int() | float():
            return repr(value)
        case Mapping():
            return "[ " + "; ".join(f"{name} = {_text(each)}" for name, each in value.items()) + " ]"
        case _:
            return "{ " + ", ".join(map(_text, value)) + " }"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}" if found[0] in '"\\' else f"\\{ord(found[0]):03o}"


def _unescaped(string: str) -> str:
    def meaning(found: re.Match[str]) -> str:
        if found[1]:  # HTCondor writes each byte outside ASCII so
            return bytes(int(code, 8) for code in found[1].split("\\")[1:]).decode(errors="surrogateescape")
        return ESCAPES.get(found[2], found[2])

    return re.sub(r"((?:\\[0-3]?[0-7]{1,2})+)|\\(.)", meaning, string[1:-1], flags=re.DOTALL)


class _AdReader:
    """A parser with one token of look-ahead."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self.next: Token = next(self._tokens)

    def _take(self, *wanted: str) -> str:
        kind, text = self.next
        if wanted and text not in wanted and kind not in wanted:
            raise AdError(f"expected {' or '.join(wanted)}, not {text or 'the end'}")
        if text:
            self.next = next(self._tokens)
        return text

    def ad(self) -> dict[str, Value]:
        """Return the next ad."""
        found: dict[str, Value] = {}
        self._take("[")
        while self.next[1] != "]":
            name = self._take("name").strip("'").lower()
            self._take("=")
            found[name] = self._value()
            if self.next[1] != "]":
                self._take(";")
        self._take("]")
        return found

    def _value(self) -> Value:
        """Return the next value; None for an expression, which is skipped."""
        value = self._literal()
        if self.next[1] in (";", "]", ",", "}"):
            return value
        depth = 0
        while depth or self.next[1] not in (";", "]", ",", "}"):
            text = self._take()
            if not text:
                raise AdError("the text ends in an expression")
            depth += (text in OPEN) - (text in CLOSED)
        return None

    def _literal(self) -> Value:
        kind, text = self.next
        if text == "[":
            return self.ad()
        if text == "{":
            return self._list()
        if kind == "string":
            return _unescaped(self._take())
        if kind == "number":
            self._take()
            return float(text) if re.search(r"[.eE]", text) else int(text)
        return WORDS.get(self._take().lower()) if kind == "name" else None

    def _list(self) -> list[Value]:
        found: list[Value] = []
        self._take("{")
        while self.next[1] != "}":
            found.append(self._value())
            if self.next[1] != "}":
                self._take(",")
        self._take("}")
        return found


def _tokens(text: str) -> Iterator[Token]:
    for found in TOKENS.finditer(text):
        if found[0] == '"':
            raise AdError("a string does not end")
        if found.lastgroup:
            yield found.lastgroup, found[0]
    while True:
        yield "sign", ""
