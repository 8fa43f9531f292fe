"""The wheel, installed without a checkout: it creates the tables of a database, and reports that they are new."""

import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
from contextlib import closing
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[3]
PARTS = (
    "LICENSE",
    "README.md",
    "broker",
    "coalloc",
    "migrations",
    "predictors",
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
)

ALONE = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
"""Environment without the path to this checkout."""


def pip(*args: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", *args], check=True, env=ALONE)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`coget-broker` in an environment with only the wheel, which sees this one's dependencies."""
    source, environment = tmp_path / "source", tmp_path / "environment"
    source.mkdir()
    for name in PARTS:
        if (HOUSE / name).is_dir():
            shutil.copytree(HOUSE / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(HOUSE / name, source / name)
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("coget-*.whl")
    shutil.rmtree(source)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    pip("--python", python, "install", "--no-deps", "--no-compile", wheel)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    asked = [python, "-c", "import broker; print(broker.__file__)"]
    where = subprocess.check_output(asked, text=True, cwd=tmp_path, env=ALONE)
    assert Path(where.strip()).is_relative_to(environment)
    return environment / "bin/coget-broker"


def test_it_upgrades_a_database(program, tmp_path):
    newest = max(int(path.name[:4]) for path in HOUSE.glob("migrations/versions/0*.py"))
    database = f"sqlite:///{tmp_path}/broker.sqlite"
    command = [program, "upgrade", "--database", database]
    first = subprocess.run(command, cwd=tmp_path, env=ALONE, text=True, capture_output=True, check=False)
    assert first.returncode == 0, first.stderr
    with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as opened:
        ((version,),) = opened.execute("SELECT version_num FROM alembic_version").fetchall()
    assert int(version) == newest
    again = subprocess.run(command, cwd=tmp_path, env=ALONE, text=True, capture_output=True, check=False)
    assert again.returncode == 0, again.stderr
