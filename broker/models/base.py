"""What all wire types have in common."""

from typing import Annotated, Any, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

__all__ = [
    "KEPT",
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

KEPT = r"^[^\x00]*$"
"""Text that databases keep: not with a NUL."""
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


def _exact(schema: Any, whose: type) -> Any:
    """The schema, with all its numbers and truths guarded, but for those of other such models, which are already."""
    if isinstance(schema, list | tuple):
        return type(schema)(_exact(each, whose) for each in schema)
    if not isinstance(schema, dict) or _others(schema, whose):
        return schema
    kind = schema.get("type")
    if isinstance(kind, str) and kind in EXACT:
        return core_schema.no_info_before_validator_function(EXACT[kind], cast(CoreSchema, schema))
    return {key: each if key in LEFT else _exact(each, whose) for key, each in schema.items()}


LEFT = frozenset({"metadata", "config", "default", "cls", "serialization", "ref", "function"})
"""Parts of a schema that are no schemas."""


def _others(schema: dict[str, Any], whose: type) -> bool:
    model = schema.get("cls")
    return schema.get("type") == "model" and model is not whose and isinstance(model, type) and issubclass(model, Exact)


class Exact(BaseModel):
    """A body in which true is no number, and no number is true."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return cast(CoreSchema, _exact(handler(source), cls))


class Wire(Exact):
    """A value on the wire: nothing in it that is not known, nothing changed after."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Fault(Wire):
    """What went wrong, and what to do."""

    code: str
    message: str
    remedy: str = ""


class Problem(Wire):
    """The one shape of all errors."""

    error: Fault


def one_or_list(said: object) -> str:
    """Tell which of the two a body is, so that it is refused for what is wrong with that, not with the other, too."""
    return "list" if isinstance(said, list) else "one"
