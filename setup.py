"""The packages, one of which has another place in the repository; all else is in setup.cfg."""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["broker*", "coalloc*", "predictors*"]),
        "broker.migrations",
        "broker.migrations.versions",
    ],
    package_dir={"broker.migrations": "migrations"},
)
