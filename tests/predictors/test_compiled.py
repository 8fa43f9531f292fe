"""Compiled and plain functions agree to the last bit; without numba there is an installation hint."""

import math
import os
import subprocess
import sys
from array import array
from random import Random

import pytest

from predictors.bank import MEMBERS, Layout, forecast_one
from predictors.compiled import INSTALLATIONS, compiled, floats, integers, stamp
from predictors.errors import MissingLibraryError
from predictors.models.kernel import NEAR
from predictors.models.neighbourhood import Neighbourhood
from predictors.models.past import Features
from predictors.selection import WINDOWS, account_of, pick, step
from tests.support.effort import effort


def test_all_members_and_their_accounts():
    layout, chance = Layout(), Random(1)
    both = []
    for fast in (False, True):
        row, account = floats(layout.empty, fast), floats(account_of(len(MEMBERS)), fast)
        both.append((integers(layout.kinds, fast), integers(layout.firsts, fast), row, account))
    (kinds, firsts, row, account), (fast_kinds, fast_firsts, fast_row, fast_account) = both
    at = 1e9
    for i in range(700):
        value = 1e6 * (1 + i % 5) * chance.lognormvariate(0, 1) * (10 if i > 400 else 1)
        at += chance.expovariate(1 / 3000)
        step(kinds, firsts, row, 0, account, 0, value, at)
        compiled(step)(fast_kinds, fast_firsts, fast_row, 0, fast_account, 0, value, at)
    assert array("d", fast_row).tobytes() == array("d", row).tobytes()
    assert array("d", fast_account).tobytes() == array("d", account).tobytes()
    for i, member in enumerate(MEMBERS):
        plain = forecast_one(kinds[i], row, firsts[i], at + 60)
        assert plain == compiled(forecast_one)(fast_kinds[i], fast_row, firsts[i], at + 60), member.name
    for window in (0, *WINDOWS):
        for squared in (False, True):
            chosen = pick(len(MEMBERS), account, 0, window, squared)
            assert chosen == compiled(pick)(len(MEMBERS), fast_account, 0, window, squared)


def test_a_neighbourhood():
    plain, fast = (Neighbourhood(NEAR, 200, fast=fast) for fast in (False, True))
    chance = Random(2)
    for i in range(500):
        lag = (15.0, 8.0, chance.uniform(0, 5), 7.0, chance.uniform(0, 5)) if i else (math.nan,) * 5
        features = Features(chance.uniform(14, 22), chance.uniform(0, 3), float(i % 3), *lag)
        value = round(chance.gauss(15, 1), 1)  # some are equal
        plain.learn(value, float(i), features)
        fast.learn(value, float(i), features)
        for now in (-1.0, 0.7 * i, i + 1.0):
            for asked in (features, features._replace(size=math.nan)):
                assert plain.quantiles(asked, now, (0.1, 0.5)) == fast.quantiles(asked, now, (0.1, 0.5))
                assert plain.expected(asked, now) == fast.expected(asked, now)


def test_unmarked_function_is_not_compiled():
    with pytest.raises(ValueError, match="not marked"):
        compiled(len)


def test_missing_numba_is_reported_with_an_installation_command(monkeypatch):
    compiled.cache_clear()
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'coget\[compiled\]'"):
        compiled(pick)


def test_a_numba_that_cannot_be_loaded_is_not_called_missing(monkeypatch, tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs NumPy 2.2 or less')\n")
    compiled.cache_clear()
    for name in [each for each in sys.modules if each.partition(".")[0] == "numba"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingLibraryError, match=r"cannot be loaded: Numba needs NumPy 2\.2"):
        compiled(pick)


def test_compiled_code_is_kept_for_one_state_of_the_source_only(tmp_path):
    (tmp_path / "models").mkdir()
    for name in ("a.py", "models/b.py"):
        (tmp_path / name).write_text("x = 1\n")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "models" / "b.py").write_text("x = 22\n")
    assert stamp(tmp_path) != before


def test_only_the_newest_directories_are_kept(tmp_path):
    home = tmp_path / "coget"
    for age in range(INSTALLATIONS):
        (home / f"compiled-{age}").mkdir(parents=True)
        os.utime(home / f"compiled-{age}", (1e9 - age, 1e9 - age))
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    code = (
        "from predictors.compiled import compiled; from predictors.models.last import last_learn; compiled(last_learn)"
    )
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    (new,) = {path.name for path in home.iterdir()} - {f"compiled-{age}" for age in range(INSTALLATIONS)}
    assert {path.name for path in home.iterdir()} == {new, *(f"compiled-{age}" for age in range(INSTALLATIONS - 1))}


@pytest.mark.long
def test_damaged_cache_of_compiled_code_is_harmless(tmp_path):
    code = (
        "from predictors.compiled import compiled; from predictors.models.last import last_learn; "
        "import numpy; row = numpy.zeros(1); compiled(last_learn)(row, 0, 5.0, 0.0); print(row[0])"
    )
    usual = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    for _ in range(effort(2, 3)):
        environment = {**usual, "XDG_CACHE_HOME": str(tmp_path)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout == "5.0\n"
        kept = [path for path in tmp_path.rglob("*.nb?") if path.is_file()]
        assert kept
        for path in kept:
            path.write_bytes(b"")
