"""A pytest plugin that runs each test COGET_TESTS_TIMES times.

    COGET_TESTS_TIMES=20 python -m pytest -p tests.support.again tests/some/test_file.py::test_name

Naming a test several times on pytest's command line does not do this: pytest runs it once.
"""

import os
import re

import pytest

__all__ = ["first_name"]

TIMES = int(os.environ.get("COGET_TESTS_TIMES", "1"))


@pytest.fixture
def again(request: pytest.FixtureRequest) -> int:
    """Return the number of the run, from 0."""
    return int(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("again")
    metafunc.parametrize("again", range(TIMES), indirect=True, ids=lambda number: f"again{number}")


def first_name(test: str) -> str:
    """Return a test's id without the number of the run."""
    return re.sub(r"-?again\d+", "", test).removesuffix("[]")
