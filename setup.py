"""The packages, one of which has another place in the repository, and man pages; all else is in setup.cfg."""

from pathlib import Path

from setuptools import find_packages, setup

SHARED = Path("packaging/share")
"""Man pages and completion scripts, if `make shared-files` has written them."""
files = [path for path in sorted(SHARED.rglob("*")) if path.is_file()]

setup(
    packages=[
        *find_packages(include=["broker*", "coalloc*", "predictors*"]),
        "broker.migrations",
        "broker.migrations.versions",
    ],
    package_dir={"broker.migrations": "migrations"},
    data_files=[(str(Path("share", path.parent.relative_to(SHARED))), [str(path)]) for path in files],
)
