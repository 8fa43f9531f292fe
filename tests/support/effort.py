"""The effort of tests that explore: a short form for `make test`, and a long form for `make test-long`."""

import os
import re
import zlib
from collections import defaultdict
from collections.abc import Iterable

import pytest

__all__ = ["DATABASE", "LONG", "effort", "leave_to_long_form", "not_in_sample"]

LONG = os.environ.get("COGET_TESTS") == "long"
DATABASE = re.compile(r"\b(sqlite|postgresql)\b")
"""Part of a test's id that tells on which database it runs."""


def effort(short: int, long: int) -> int:
    """Return the number of tries. The test must also be marked `long`, so that `make test-long` runs it."""
    return long if LONG else short


def not_in_sample(items: Iterable[pytest.Item]) -> set[pytest.Item]:
    """Return the tests that the marker `sampled` leaves out.

    Of N forms of a test, one is in the sample, the same ones in each run. The forms of a test on several databases
    count as one.
    """
    tests: dict[tuple[str, int], dict[str, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    for item in items:
        if marker := item.get_closest_marker("sampled"):
            tests[item.nodeid.partition("[")[0], marker.args[0]][DATABASE.sub("", item.nodeid)].append(item)
    left_out: set[pytest.Item] = set()
    for (_, one_in), forms in tests.items():
        shuffled = sorted(forms, key=lambda form: zlib.crc32(form.encode()))
        left_out.update(item for form in shuffled[-(-len(forms) // one_in) :] for item in forms[form])
    return left_out


def leave_to_long_form(config: pytest.Config, items: list[pytest.Item], some: set[pytest.Item]) -> None:
    """Drop some tests from `make test`, unless the command line names tests; `make test-long` runs them."""
    if LONG:
        for item in some:
            item.add_marker(pytest.mark.long)
    elif some and not any("::" in word for word in config.args):
        config.hook.pytest_deselected(items=list(some))
        items[:] = [item for item in items if item not in some]
