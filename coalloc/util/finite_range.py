"""A range of finite numbers, for options of commands."""

from math import isfinite
from typing import Any

import click

__all__ = ["FiniteRange"]


class FiniteRange(click.FloatRange):
    """A range of finite numbers; `click.FloatRange` accepts NaN and infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number."""
        number = super().convert(value, param, ctx)
        if not isfinite(number):
            self.fail(f"{value!r} is not finite", param, ctx)
        return number
