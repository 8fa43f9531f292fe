"""Seeds for tests of random cases: the same in each run, others in `make fuzz`, which stores those that fail."""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from random import Random

from tests.support.again import first_name

__all__ = ["FOUND", "FUZZING", "tries"]

FOUND = Path(__file__).parents[1] / "seeds.json"
"""Seeds that failed once, by test; they are tried first."""
FUZZING = os.environ.get("COGET_FUZZ")
"""Value from which `make fuzz` makes new seeds."""


def tries(count: int) -> Iterator[AbstractContextManager[int]]:
    """Give the seeds that were found for the test that runs, and `count` others.

    What fails within says with which seed: `for attempt in tries(9): with attempt as seed: ...`
    """
    test = first_name(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])
    chance = Random(f"{FUZZING or ''} {test}")
    seeds = [*_found().get(test, ()), *(chance.getrandbits(24) for _ in range(count))]
    return (_attempt(test, seed) for seed in seeds)


def _found() -> dict[str, list[int]]:
    return json.loads(FOUND.read_text()) if FOUND.exists() else {}


@contextmanager
def _attempt(test: str, seed: int) -> Iterator[int]:
    try:
        yield seed
    except Exception as error:
        error.add_note(f"with the seed {seed}, which {FOUND.name} may keep for {test}")
        if FUZZING:
            _keep(test, seed)
        raise


def _keep(test: str, seed: int) -> None:
    """Store a seed; other processes may do so at the same time."""
    with FOUND.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = json.loads(file.read() or "{}")
        found[test] = sorted({*found.get(test, ()), seed})
        file.truncate(0)
        file.write(json.dumps(found, indent=1, sort_keys=True) + "\n")
