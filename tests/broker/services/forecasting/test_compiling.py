"""The first import of the compiler."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from broker.services.forecasting import compiling


def test_two_threads_never_import_the_compiler_at_once(monkeypatch):
    inside, met = [], Event()

    def importing():
        inside.append(1)
        if len(inside) > 1:
            met.set()
        met.wait(0.1)
        inside.pop()

    monkeypatch.setattr(compiling, "compiler", importing)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: compiling.load_compiler(), range(2)))
    assert not met.is_set()
