"""The wheel and the sdist; the wheel is installed without a checkout, and creates the tables of a database."""

import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import tarfile
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts import shared_files
from tests.support.effort import LONG

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


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout after `make shared-files`."""
    source = tmp_path_factory.mktemp("wheel") / "source"
    source.mkdir()
    for name in PARTS:
        if (HOUSE / name).is_dir():
            shutil.copytree(HOUSE / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(HOUSE / name, source / name)
    shared_files.main(source / "packaging/share")
    return source


@pytest.fixture(scope="module")
def wheel(source: Path) -> Path:
    place = source.parent
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", place, source)
    (wheel,) = place.glob("coget-*.whl")
    return wheel


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    command = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('..')"]
    subprocess.run(command, cwd=source, check=True, env=ALONE, stdout=subprocess.DEVNULL)
    (sdist,) = source.parent.glob("coget-*.tar.gz")
    return sdist


@pytest.fixture(scope="module")
def program(wheel: Path) -> Path:
    """`coget-broker` in an environment with only the wheel, which sees this one's dependencies."""
    environment = wheel.parent / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    python = environment / "bin/python"
    pip("--python", python, "install", "--no-deps", "--no-compile", wheel)
    (site,) = environment.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    asked = [python, "-c", "import broker; print(broker.__file__)"]
    where = subprocess.check_output(asked, text=True, cwd=environment, env=ALONE)
    assert Path(where.strip()).is_relative_to(environment)
    return environment / "bin/coget-broker"


def test_it_installs_man_pages_and_completion(program, source):
    share = program.parents[1] / "share"
    written = {path.relative_to(source / "packaging/share") for path in source.glob("packaging/share/**/*")}
    assert Path("man/man1/coget.1") in written
    assert written <= {path.relative_to(share) for path in share.rglob("*")}


@pytest.mark.long
@pytest.mark.skipif(not LONG, reason="make test-long builds the sdist")
def test_the_sdist_contains_all_sources(sdist, source):
    with tarfile.open(sdist) as opened:
        held = {name.partition("/")[2] for name in opened.getnames()}
    wanted = ("broker/**/*", "coalloc/**/*.py", "migrations/**/*.py", "predictors/**/*.py", "packaging/share/**/*")
    files = [path for pattern in wanted for path in source.glob(pattern) if path.is_file()]
    assert {str(path.relative_to(source)) for path in files} <= held


@pytest.mark.long
@pytest.mark.skipif(not LONG, reason="make test-long builds the sdist")
@pytest.mark.skipif(not find_spec("twine"), reason="twine is not installed; it is in the extra `packages`")
def test_registries_accept_wheel_and_sdist(wheel, sdist):
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], check=True)
    named = ["--toplevel", "broker,coalloc,predictors", "--ignore", "W004"]  # files of migrations begin with digits
    subprocess.run([sys.executable, "-m", "check_wheel_contents", *named, wheel], check=True)


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
