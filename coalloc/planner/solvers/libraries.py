"""A check for the libraries that solvers need, which a client without plans does not install."""

from collections.abc import Iterator
from contextlib import contextmanager

from coalloc.errors import UsageError

__all__ = ["needed"]


@contextmanager
def needed() -> Iterator[None]:
    """Wrap imports of modules that need these libraries.

    :raises UsageError: when they are not installed
    """
    try:
        yield
    except ModuleNotFoundError:
        raise UsageError("plans need NumPy and SciPy", "run: pip install 'coget[planner]'") from None
