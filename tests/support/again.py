"""A plugin that runs each chosen test several times: pytest itself runs a test that is named twice only once.

COGET_TESTS_TIMES=20 python -m pytest -p tests.support.again tests/some/test_file.py::test_name
"""

import os
import re

import pytest

__all__ = ["first_name"]

TIMES = int(os.environ.get("COGET_TESTS_TIMES", "1"))


@pytest.fixture
def again(request: pytest.FixtureRequest) -> int:
    """The number of the run."""
    return int(request.param)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append("again")
    metafunc.parametrize("again", range(TIMES), indirect=True, ids=lambda number: f"again{number}")


def first_name(test: str) -> str:
    """Return the test's name without the number of the run."""
    return re.sub(r"-?again\d+", "", test).removesuffix("[]")
