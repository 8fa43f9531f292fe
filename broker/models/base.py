"""The base classes of all wire types, and the fields that they share."""

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = [
    "STORABLE",
    "Count",
    "Exact",
    "Fault",
    "Latitude",
    "Longitude",
    "Moment",
    "Problem",
    "Seconds",
    "Size",
    "Wire",
    "one_or_list",
]

STORABLE = r"^[^\x00]*$"
"""Pattern of text that databases can store: no NUL."""
Size = Annotated[int, Field(ge=0, lt=2**63)]
"""Bytes."""
Moment = Annotated[float, Field(ge=0, lt=1e11, allow_inf_nan=False)]
"""Seconds since the epoch."""
Seconds = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]


def _count(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not true or false")
    return value


def _truth(value: Any) -> Any:
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise ValueError("true or false is expected, not a number")
    return value


EXACT = {"int": _count, "float": _count, "bool": _truth}


def _exact(schema: Any, owner: type) -> Any:
    """Return the schema with strict numbers and booleans; do not change nested `Exact` models, which are strict.

    :param owner: model to which the schema belongs
    """
    if isinstance(schema, list | tuple):
        return type(schema)(_exact(each, owner) for each in schema)
    if not isinstance(schema, dict) or _others(schema, owner):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and kind in EXACT:
        return core_schema.no_info_before_validator_function(EXACT[kind], cast(CoreSchema, schema))
    return {key: each if key in LEFT else _exact(each, owner) for key, each in schema.items()}


LEFT = frozenset({"metadata", "config", "default", "cls", "serialization", "ref", "function"})
"""Keys of a schema whose values are not schemas."""


def _others(schema: dict[str, Any], owner: type) -> bool:
    model = schema.get("cls")
    return schema.get("type") == "model" and model is not owner and isinstance(model, type) and issubclass(model, Exact)


class Exact(BaseModel):
    """A model that accepts no boolean as a number, and no number as a boolean."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return cast(CoreSchema, _exact(handler(source), cls))


class Wire(Exact):
    """A value on the wire: immutable, and without unknown fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(Wire):
    """An error, and its remedy."""

    code: str
    message: str
    remedy: str = ""


class Problem(Wire):
    """The body of an error response."""

    error: Fault


def one_or_list(value: object) -> str:
    """Return "list" or "one" for a body; the tag limits the reported faults to those of this form."""
    return "list" if isinstance(value, list) else "one"
