"""Examples of property tests in `make test` are always the same, whichever tests ran before."""

import runpy
import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tests.support.effort import LONG
from tests.support.seeds import FUZZING


def drawn() -> list[tuple[int, float, str]]:
    found = []

    @given(some.integers(), some.floats(allow_nan=False), some.text())
    def test(number, rate, text):
        found.append((number, rate, text))

    test()
    return found


@pytest.mark.skipif(LONG or bool(FUZZING), reason="other examples are tried on purpose")
def test_examples_do_not_depend_on_the_loaded_modules(tmp_path, monkeypatch):
    before = drawn()
    for number in range(20):
        file = tmp_path / f"module{number}.py"
        constants = (10**6 + 7919 * (100 * number + i) for i in range(100))
        file.write_text("\n".join(f"A{each} = {each}, {each}.5, 'text {each}'" for each in constants))
        module = ModuleType(file.stem)
        module.__file__ = str(file)
        module.__dict__.update(runpy.run_path(str(file)))
        monkeypatch.setitem(sys.modules, file.stem, module)
    assert drawn() == before
