"""Parsers of filters, orders and field lists in the syntax of Globus, as pure functions.

name:~*.txt/type:file            both conditions
status:ACTIVE,INACTIVE           one of the two values
request_time:2024-01-01,         since this time
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import Any

from broker.errors import Invalid

__all__ = ["between", "chosen", "clauses", "fitting", "moment", "ordered", "stamp"]


def clauses(text: str, known: Collection[str]) -> dict[str, list[str]]:
    """Return the values that a filter requires, by field.

    :raises Invalid: when the text is not a filter, or has an unknown field
    >>> clauses("type:TRANSFER,DELETE/label:~x*", ("type", "label"))
    {'type': ['TRANSFER', 'DELETE'], 'label': ['~x*']}
    """
    if not text.isprintable():
        raise Invalid(f"{text[:80]!r} is not a filter", "leave out unprintable characters")
    found: dict[str, list[str]] = {}
    for part in filter(None, text.split("/")):
        field, colon, values = part.partition(":")
        if not colon or field not in known:
            raise Invalid(
                f"{part[:80]!r} is not a supported filter", f"write FIELD:VALUE, with one of {', '.join(known)}"
            )
        found[field] = values.split(",")
    return found


def moment(text: str) -> float:
    """Return a date or time in seconds since the epoch; UTC if it has no offset.

    :raises Invalid: when the text is not a time

    >>> moment("1970-01-02"), moment("1970-01-01 00:00:10"), moment("1970-01-01T02:00:00+02:00")
    (86400.0, 10.0, 0.0)
    """
    try:
        date = datetime.fromisoformat(text.strip())
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds < 1e11:
        raise Invalid(f"{text[:80]!r} is not a time", "write it as 2030-01-31T12:00:00+00:00")
    return seconds


def stamp(seconds: float, between: str = "T") -> str:
    """Return seconds since the epoch in the format of Globus, which has a blank instead of the T for files.

    >>> stamp(10), stamp(10, " ")
    ('1970-01-01T00:00:10+00:00', '1970-01-01 00:00:10+00:00')
    """
    return datetime.fromtimestamp(seconds, UTC).isoformat(between, "seconds")


def between(values: Sequence[str]) -> tuple[float | None, float | None]:
    """Return the start and end of a period in seconds since the epoch; None for an open end.

    :raises Invalid: when the values are not a period

    >>> between(["1970-01-02", ""])
    (86400.0, None)
    """
    since, until, *more = [*values, "", ""][: max(2, len(values))]
    if more:
        raise Invalid(f"{','.join(values)[:80]!r} is not a range of time", "write SINCE,UNTIL; either may be empty")
    return moment(since) if since else None, moment(until) if until else None


def ordered(text: str, known: Collection[str]) -> list[tuple[str, bool]]:
    """Return the fields to sort by, each with True for descending order.

    :raises Invalid: when a field is unknown

    >>> ordered("request_time DESC,label", ("request_time", "label"))
    [('request_time', True), ('label', False)]
    """
    found = []
    for part in filter(None, text.split(",")):
        field, _, order = part.strip().partition(" ")
        if field not in known or order.strip().upper() not in ("", "ASC", "DESC"):
            raise Invalid(
                f"{part[:80]!r} is not a supported order", f"write FIELD or FIELD DESC, with {', '.join(known)}"
            )
        found.append((field, order.strip().upper() == "DESC"))
    return found


def fitting(filters: Iterable[str], known: Collection[str]) -> Callable[[Mapping[str, Any]], bool]:
    """Return a function that tells whether a document fits one of the filters; without filters, every document fits.

    :raises Invalid: when a filter is not valid

    >>> fits = fitting(["name:~*.txt", "type:dir"], ("name", "type"))
    >>> fits({"name": "a.txt", "type": "file"}), fits({"name": "b", "type": "file"}), fits({"name": "b", "type": "dir"})
    (True, False, True)
    """
    alternatives = [
        [_test(field, values) for field, values in clauses(each, known).items()] for each in filters if each
    ]
    return lambda document: not alternatives or any(all(test(document) for test in tests) for tests in alternatives)


def _test(field: str, values: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    if field == "last_modified":
        since, until = between(values)
        first, last = stamp(since or 0, " "), "~" if until is None else stamp(until, " ")
        return lambda document: first <= (document[field] or "") < last
    if field == "size":
        return _sized(values)
    tests = [(value[1:] if value.startswith("!") else value, value.startswith("!")) for value in values]

    def fits(document: Mapping[str, Any]) -> bool:
        """Return whether a value fits one of the patterns, and none of the negated ones."""
        matches = [_fits(pattern, document[field]) is not wrong for pattern, wrong in tests]
        positive = [fits for fits, (_, wrong) in zip(matches, tests, strict=True) if not wrong]
        return all(fits for fits, (_, wrong) in zip(matches, tests, strict=True) if wrong) and (
            not positive or any(positive)
        )

    return fits


def _sized(values: Sequence[str]) -> Callable[[Mapping[str, Any]], bool]:
    tests = []
    for value in values:
        sign = value[:1] if value[:1] in "<>=" else "="
        number = value.removeprefix(sign)
        if not number.isdecimal() or len(number) > 20:
            raise Invalid(f"{value[:80]!r} is not a size", "write size:N, size:>N or size:<N, in bytes")
        tests.append((sign, int(number)))

    def fits(document: Mapping[str, Any]) -> bool:
        size = document["size"] or 0
        return all(size > n if sign == ">" else size < n if sign == "<" else size == n for sign, n in tests)

    return fits


def _fits(pattern: str, value: Any) -> bool:
    text = str(value if value is not None else "")
    if pattern.startswith("~"):
        return fnmatchcase(text.lower(), pattern[1:].lower())
    return text == pattern.removeprefix("=")


def chosen(document: dict[str, Any], fields: str) -> dict[str, Any]:
    """Return the document with only `DATA_TYPE` and the named fields, or unchanged if no field is named.

    >>> chosen({"DATA_TYPE": "task", "task_id": "x", "status": "ACTIVE"}, "task_id")
    {'DATA_TYPE': 'task', 'task_id': 'x'}
    """
    names = {"DATA_TYPE", *fields.split(",")}
    return {name: value for name, value in document.items() if name in names} if fields else document
