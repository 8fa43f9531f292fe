"""Slow preparations for many tests: installs the Globus clients, compiles the forecasters and the tests.

    python -m tests.support.prepared

does once what is still missing, so that not each process of the tests has to do it.
"""

import os
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from shutil import rmtree

from predictors.compiled import available
from predictors.hedge import Hedge
from predictors.observation import Observation, Query
from tests.support.globus import CLIENTS, made
from tests.support.programs import COMPILED, with_this_checkout

__all__: list[str] = []

TESTS = Path(__file__).parents[1]


def _compile() -> None:
    for old in COMPILED.parent.glob("compiled-*") if not COMPILED.exists() else ():
        rmtree(old, ignore_errors=True)
    forecaster = Hedge(fast=True)
    for i in range(3):
        forecaster.learn(Observation("ftp://a.example", 10.0 * i, 10.0 * i + 5, 10**8))
    forecaster.forecast(Query("ftp://a.example", 100.0, 10**8))


def _compile_tests() -> None:
    """Compile the tests with pytest's rewritten assertions; with a fresh checkout, each process would do so."""
    if len(list(TESTS.rglob("*-pytest-*.pyc"))) < len(list(TESTS.rglob("test_*.py"))):
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
        subprocess.run(
            command, cwd=TESTS.parent, stdout=subprocess.DEVNULL, check=False
        )  # the tests show what is wrong


def main() -> None:
    """Install the clients, and compile the forecasters and the tests, in parallel."""
    os.environ.update(with_this_checkout(os.environ))
    with ThreadPoolExecutor() as pool:
        others: list[Future[object]] = [*(pool.submit(made, name) for name in CLIENTS), pool.submit(_compile_tests)]
        if available():
            _compile()
    for each in others:
        each.result()


if __name__ == "__main__":
    main()
