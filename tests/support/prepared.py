"""Slow preparations for many tests: installs the Globus clients, and compiles the forecasters.

    python -m tests.support.prepared

does once what is still missing, so that not each process of the tests has to do it.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from shutil import rmtree

from predictors.compiled import available
from predictors.hedge import Hedge
from predictors.observation import Observation, Query
from tests.support.globus import CLIENTS, made
from tests.support.programs import COMPILED, with_this_checkout

__all__: list[str] = []


def _compile() -> None:
    for old in COMPILED.parent.glob("compiled-*") if not COMPILED.exists() else ():
        rmtree(old, ignore_errors=True)
    forecaster = Hedge(fast=True)
    for i in range(3):
        forecaster.learn(Observation("ftp://a.example", 10.0 * i, 10.0 * i + 5, 10**8))
    forecaster.forecast(Query("ftp://a.example", 100.0, 10**8))


def main() -> None:
    """Install the clients and compile the forecasters, in parallel."""
    os.environ.update(with_this_checkout(os.environ))
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(made, name) for name in CLIENTS]
        if available():
            _compile()
    for each in clients:
        each.result()


if __name__ == "__main__":
    main()
