"""Seeds for tests of random cases: the same in each run. `make fuzz` uses others, and stores those that fail."""

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
"""File with seeds that failed once, by test; they are tried first."""
FUZZING = os.environ.get("COGET_FUZZ")
"""Value from which new seeds are derived in `make fuzz`; None in other runs."""


def tries(count: int) -> Iterator[AbstractContextManager[int]]:
    """Return the stored seeds of the running test, then `count` others, each as a context manager.

    An error in the `with` block gets a note with the seed: `for attempt in tries(9): with attempt as seed: ...`
    """
    test = first_name(os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0])
    chance = Random(f"{FUZZING or ''} {test}")
    seeds = [*_found().get(test, ()), *(chance.getrandbits(24) for _ in range(count))]
    return (_attempt(test, seed) for seed in seeds)


def _found() -> dict[str, list[int]]:
    if not FOUND.exists():
        return {}
    with FOUND.open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # while another process writes, the file is empty for a moment
        return json.loads(file.read() or "{}")


@contextmanager
def _attempt(test: str, seed: int) -> Iterator[int]:
    try:
        yield seed
    except Exception as error:
        error.add_note(f"failed with seed {seed}; to repeat it, add the seed to {FOUND.name} under {test}")
        if FUZZING:
            _keep(test, seed)
        raise


def _keep(test: str, seed: int) -> None:
    """Store a seed under a lock, because other processes may store seeds at the same time."""
    with FOUND.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        found = json.loads(file.read() or "{}")
        found[test] = sorted({*found.get(test, ()), seed})
        file.truncate(0)
        file.write(json.dumps(found, indent=1, sort_keys=True) + "\n")
