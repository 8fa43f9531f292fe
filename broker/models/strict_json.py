"""A strict reader of JSON, which refuses duplicate keys in an object, and constants such as NaN."""

import json
from typing import Any

from broker.errors import Invalid

__all__ = ["document"]


def document(body: bytes | str) -> Any:
    """Read JSON.

    :raises Invalid: when an object has a duplicate key, which other programs may resolve in another way
    :raises ValueError: when the text is not JSON, or not in UTF-8 (RFC 8259, 8.1)

    >>> document(b'{"a": [{"b": 1}]}')
    {'a': [{'b': 1}]}
    """
    try:
        text = body.decode() if isinstance(body, bytes) else body
        return json.loads(text, object_pairs_hook=_once, parse_constant=_none)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Invalid(f"the body has {twice[:100]!a} twice", "send it once")
    return found


def _none(word: str) -> None:
    raise json.JSONDecodeError(f"{word} is not a number", word, 0)
