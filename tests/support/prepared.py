"""Preparation of what many tests need and takes long: the Globus clients, and compiled forecasters.

python -m tests.support.prepared    makes what is missing, once; else each process of the tests would
"""

from concurrent.futures import ThreadPoolExecutor

from predictors.compiled import available
from predictors.hedge import Hedge
from predictors.observation import Observation, Query
from tests.support.globus import CLIENTS, made

__all__: list[str] = []


def _compile() -> None:
    forecaster = Hedge(fast=True)
    for i in range(3):
        forecaster.learn(Observation("ftp://a.example", 10.0 * i, 10.0 * i + 5, 10**8))
    forecaster.forecast(Query("ftp://a.example", 100.0, 10**8))


def main() -> None:
    """Prepare everything in parallel."""
    with ThreadPoolExecutor() as pool:
        clients = [pool.submit(made, name) for name in CLIENTS]
        if available():
            _compile()
    for each in clients:
        each.result()


if __name__ == "__main__":
    main()
