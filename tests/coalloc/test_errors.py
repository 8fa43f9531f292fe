"""Errors that other processes get: they survive pickling as they are."""

import inspect
import pickle

import pytest

from coalloc import errors
from coalloc.errors import CoallocError, FilesFailed, NoFreeConnection, NoSuchFile, ServerBusy

PLAIN = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, CoallocError) and kind is not FilesFailed and not issubclass(kind, NoFreeConnection)
]


@pytest.mark.parametrize(
    "error",
    [
        *(kind("a\nb", "c") for kind in PLAIN),
        CoallocError("x", "y", ["one\n", "two\\"]),
        FilesFailed({"x": NoSuchFile("none", "z"), "y": ServerBusy("later", retry_after=3)}, 4, 1),
        ServerBusy("x", retry_after=7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling(error):
    error.add_note("more")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args) == (str(error), error.args)
    assert vars(again) == vars(error)
    assert (again.status, again.code, again.transient) == (error.status, error.code, error.transient)
