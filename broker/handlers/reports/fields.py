"""What may be asked of a report, as the fields of a form."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

__all__ = ["Asked", "fields"]

NUMBERS = ("integer", "number")


class Asked(NamedTuple):
    """A field.

    :param value: what was asked, empty for nothing
    :param options: what can be; empty where anything can
    """

    name: str
    label: str
    value: str
    hint: str = ""
    options: tuple[str, ...] = ()
    number: bool = False


def fields(wanted: BaseModel) -> list[Asked]:
    """Those of this query, with what it says; but for those whose schema says that they are `hidden`."""
    schema = type(wanted).model_json_schema()
    said = wanted.model_dump(mode="json")
    shown = {name: each for name, each in schema["properties"].items() if not each.get("hidden")}
    return [_field(name, each, said[name], schema.get("$defs", {})) for name, each in shown.items()]


def _field(name: str, schema: Mapping[str, Any], value: Any, named: Mapping[str, Any]) -> Asked:
    kinds = [_resolved(each, named) for each in schema.get("anyOf", [schema])]
    kind = next(each for each in kinds if each.get("type") != "null")
    options = tuple(map(_said, kind.get("enum", (False, True) if kind.get("type") == "boolean" else ())))
    return Asked(
        name,
        _label(name, str(schema["title"])),
        _said(value),
        str(schema.get("description", "")),
        ("", *options) if options and schema.get("default") is None else options,
        kind.get("type") in NUMBERS,
    )


def _label(name: str, title: str) -> str:
    """As people write; what nobody has given a title has one that is made of its name, with capitals everywhere."""
    return title.capitalize() if title == name.replace("_", " ").title() else title


def _resolved(schema: Mapping[str, Any], named: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = named[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    return found


def _said(value: Any) -> str:
    """As it stands in a query."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
