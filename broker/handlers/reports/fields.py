"""Query parameters of a report, as fields of a form."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from broker.reports.queries import day_of

__all__ = ["FormField", "fields"]

NUMBERS = ("integer", "number")


class FormField(NamedTuple):
    """A field of a form.

    :param value: current value; empty if none
    :param options: possible values and their labels; empty if any value is possible
    :param kind: type of the field: text, number or date
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: Mapping[str, str] = {}
    kind: Literal["text", "number", "date"] = "text"


def fields(wanted: BaseModel) -> list[FormField]:
    """Return the fields of this query with its values, except those that its schema marks as `hidden`."""
    schema = type(wanted).model_json_schema()
    said = wanted.model_dump(mode="json")
    shown = {name: each for name, each in schema["properties"].items() if not each.get("hidden")}
    return [_field(name, each, said[name], schema.get("$defs", {})) for name, each in shown.items()]


def _field(name: str, schema: Mapping[str, Any], value: Any, named: Mapping[str, Any]) -> FormField:
    kinds = [_resolved(each, named) for each in schema.get("anyOf", [schema])]
    kind = next(each for each in kinds if each.get("type") != "null")
    options = _options(kind)
    if options and schema.get("default") is None:
        options = {"": "any", **options}
    hint = str(schema.get("description", kind.get("description", "")))
    label = _label(name, str(schema["title"]))
    if kind.get("day"):
        return FormField(name, label, "" if value is None else day_of(value), hint, kind="date")
    return FormField(name, label, _said(value), hint, options, "number" if kind.get("type") in NUMBERS else "text")


def _options(kind: Mapping[str, Any]) -> dict[str, str]:
    if words := kind.get("words"):
        return dict(words)
    listed = kind.get("enum", (False, True) if kind.get("type") == "boolean" else ())
    return {each: each for each in map(_said, listed)}


def _label(name: str, title: str) -> str:
    """Return the label: an explicit title, or one made from the name, of which only the first letter is a capital."""
    return title.capitalize() if title == name.replace("_", " ").title() else title


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _said(value: Any) -> str:
    """Return a value as written in a query."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
