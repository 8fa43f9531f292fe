"""Functions that run as plain Python or, on request and if numba is installed, compiled: faster, with equal results.

Compiling takes seconds, and loading numba and cached code some tenths of a second. This pays for a log of thousands of
transfers, but not for the few behind one forecast, so nothing is compiled on import. A function decorated with
`compilable` is plain Python; `compiled` makes a twin of it, in which all compilable functions that it calls are
compiled, too.

Compiled code is cached below ~/.cache/coget, or XDG_CACHE_HOME, in a directory for this exact state of the package:
numba notices changes in the file of a function, but not in the files of functions that were compiled into it.
"""

import os
from array import array
from collections.abc import Callable, Iterable, MutableSequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from types import FunctionType
from typing import Any, ParamSpec, TypeVar, cast
from zlib import crc32

from predictors.errors import MissingLibraryError

__all__ = ["REMEDY", "available", "compilable", "compiled", "compiler", "floats", "integers", "stamp", "zeros"]

REMEDY = "pip install 'coget[compiled]'"
"""Command that installs numba."""

INSTALLATIONS = 4
"""Number of newest directories of compiled code to keep."""

P = ParamSpec("P")
R = TypeVar("R")

COMPILABLE: set[FunctionType] = set()


def compilable(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function of numbers and arrays that numba can compile."""
    COMPILABLE.add(cast(FunctionType, function))
    return function


def available() -> bool:
    """Return whether numba is installed."""
    return find_spec("numba") is not None


@cache
def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a compiled twin of a compilable function.

    :raises MissingLibraryError: when numba is not installed, or cannot be loaded
    :raises ValueError: if the function is not marked as `compilable`
    """
    if function not in COMPILABLE:
        raise ValueError(f"{function} is not marked as compilable")
    njit = compiler()
    _keep_compiled()
    plain: Any = function
    scope: dict[str, Any] = dict(plain.__globals__)
    for name in plain.__code__.co_names:
        other = scope.get(name)
        if isinstance(other, FunctionType) and other in COMPILABLE:
            scope[name] = compiled(other)
    twin = FunctionType(plain.__code__, scope, plain.__name__, plain.__defaults__, plain.__closure__)
    try:
        made = njit(twin, forceinline=True, cache=True, error_model="numpy")
    except RuntimeError:  # no directory for the cache
        made = njit(twin, forceinline=True, error_model="numpy")
    dispatcher: Any = made
    for name in ("load_overload", "save_overload"):
        setattr(dispatcher._cache, name, _or_none(getattr(dispatcher._cache, name)))
    return cast(Callable[P, R], made)


def compiler() -> Callable[..., Any]:
    """Return numba's decorator. A program with several threads calls this first in one of them.

    Otherwise two first imports at once may fail: where two threads import modules of one library in different orders,
    Python breaks the deadlock by handing one of them a half-loaded module.

    :raises MissingLibraryError: when numba is not installed, or cannot be loaded
    """
    if not available():
        raise MissingLibraryError(f"numba is not installed; run: {REMEDY}")
    try:
        from numba import njit
    except ImportError as error:  # for example, because it does not support the installed NumPy
        raise MissingLibraryError(f"numba is installed, but cannot be loaded: {error}") from error
    return cast(Callable[..., Any], njit)


def _or_none(keeping: Callable[P, R]) -> Callable[P, R | None]:
    """Wrap a cache function to return None on errors: a full disk or damaged file then only costs a compilation."""

    def attempt(*args: P.args, **kwargs: P.kwargs) -> R | None:
        try:
            return keeping(*args, **kwargs)
        except Exception:  # reading a damaged pickle may raise anything
            return None

    return attempt


@cache
def _keep_compiled() -> None:
    """Set numba's cache directory, unless the user has set one."""
    import numba

    config: Any = numba.config  # numba creates its settings on import
    if not config.CACHE_DIR:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "coget"
        ours = home / f"compiled-{stamp(Path(__file__).parent)}"
        if not ours.exists():
            with suppress(OSError):  # without a directory, code is compiled in each process
                ours.mkdir(parents=True)
            _remove_old(home)
        config.CACHE_DIR = str(ours)


def _remove_old(home: Path) -> None:
    """Remove old directories of compiled code; keep the newest few, as a user may have several installations."""
    made = []
    for each in home.glob("compiled-*"):
        with suppress(OSError):  # another process removes it, too
            made.append((each.stat().st_mtime, each))
    for _, old in sorted(made)[:-INSTALLATIONS]:
        rmtree(old, ignore_errors=True)


def stamp(package: Path) -> str:
    """Return a hash of the state of a package's source: names, sizes and times of its files."""
    files = ((path, path.stat()) for path in sorted(package.rglob("*.py")))
    state = [(str(path.relative_to(package)), stat.st_size, stat.st_mtime_ns) for path, stat in files]
    return f"{crc32(repr(state).encode()):08x}"


def floats(values: Iterable[float], fast: bool) -> MutableSequence[float]:
    """Return an array of floats for a compilable function; a NumPy array, for its compiled twin, if `fast`."""
    return cast("MutableSequence[float]", _numpy(array("d", values), fast))


def zeros(count: int, fast: bool) -> MutableSequence[float]:
    """Return an array of `count` zeros, of the same type as from `floats`."""
    return cast("MutableSequence[float]", _numpy(array("d", bytes(8 * count)), fast))


def integers(values: Iterable[int], fast: bool) -> MutableSequence[int]:
    """Return an array of integers for a compilable function; a NumPy array, for its compiled twin, if `fast`."""
    return cast("MutableSequence[int]", _numpy(array("q", values), fast))


def _numpy(plain: "array[Any]", fast: bool) -> Any:
    if not fast:
        return plain
    import numpy as np

    return np.frombuffer(plain, plain.typecode)
