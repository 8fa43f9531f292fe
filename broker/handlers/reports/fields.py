"""What may be asked of a report, as the fields of a form."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from broker.reports.asking import day_of

__all__ = ["Asked", "fields"]

NUMBERS = ("integer", "number")


class Asked(NamedTuple):
    """A field.

    :param value: what was asked, empty for nothing
    :param options: what can be, and how people call it; empty where anything can
    :param kind: what else it is: a date, or a number
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: Mapping[str, str] = {}
    kind: Literal["text", "number", "date"] = "text"


def fields(wanted: BaseModel) -> list[Asked]:
    """Those of this query, with what it says; but for those whose schema says that they are `hidden`."""
    schema = type(wanted).model_json_schema()
    said = wanted.model_dump(mode="json")
    shown = {name: each for name, each in schema["properties"].items() if not each.get("hidden")}
    return [_field(name, each, said[name], schema.get("$defs", {})) for name, each in shown.items()]


def _field(name: str, schema: Mapping[str, Any], value: Any, named: Mapping[str, Any]) -> Asked:
    kinds = [_resolved(each, named) for each in schema.get("anyOf", [schema])]
    kind = next(each for each in kinds if each.get("type") != "null")
    options = _options(kind)
    if options and schema.get("default") is None:
        options = {"": "any", **options}
    hint = str(schema.get("description", kind.get("description", "")))
    label = _label(name, str(schema["title"]))
    if kind.get("day"):
        return Asked(name, label, "" if value is None else day_of(value), hint, kind="date")
    return Asked(name, label, _said(value), hint, options, "number" if kind.get("type") in NUMBERS else "text")


def _options(kind: Mapping[str, Any]) -> dict[str, str]:
    if words := kind.get("words"):
        return dict(words)
    listed = kind.get("enum", (False, True) if kind.get("type") == "boolean" else ())
    return {each: each for each in map(_said, listed)}


def _label(name: str, title: str) -> str:
    """As people write; what nobody has given a title has one that is made of its name, with capitals everywhere."""
    return title.capitalize() if title == name.replace("_", " ").title() else title


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _said(value: Any) -> str:
    """As it stands in a query."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
