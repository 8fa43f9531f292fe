"""What all wire types have in common."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["KEPT", "Count", "Fault", "Latitude", "Longitude", "Moment", "Problem", "Seconds", "Size", "Wire"]

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


class Wire(BaseModel):
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
