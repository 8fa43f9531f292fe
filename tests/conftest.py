"""Fixtures that many tests share: real servers that end with their test."""

import contextlib
import functools
import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from tests.support.effort import LONG, leave_to_long_form, not_in_sample
from tests.support.gridftp import GridFTPServer
from tests.support.gsi import Authority, Identity
from tests.support.programs import with_this_checkout
from tests.support.seeds import FUZZING
from tests.support.waiting import PATIENCE
from tests.testbed import driver

# The same few examples in each run, so that no change is refused by luck; `make test-long` and `make fuzz` try others.
settings.register_profile(
    "tests",
    max_examples=100 if LONG or FUZZING else 25,
    derandomize=not (LONG or FUZZING),
    deadline=None,
    print_blob=True,
)
settings.load_profile("tests")
if not (LONG or FUZZING):  # Hypothesis also tries constants of all loaded modules: of the tests that ran before
    providers._get_local_constants = functools.cache(Constants)

os.environ.update(with_this_checkout(os.environ))  # programs started by tests come from this checkout, too

gc.set_threshold(20_000, 20, 50)  # a tenth of the time went into scanning modules that are only loaded

_no_wan = functools.cache(driver.refusal)


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin that reports failures with all that a developer needs."""
    config.pluginmanager.import_plugin("tests.support.failures")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the forms of tests that are not in their sample to `make test-long`, which also tries more examples."""
    leave_to_long_form(config, items, not_in_sample(items))
    for item in items:
        if LONG and isinstance(item, pytest.Function) and getattr(item.obj, "is_hypothesis_test", False):
            item.add_marker(pytest.mark.long)


def pytest_collection_finish() -> None:
    """Exclude modules and tests from garbage collection: they live to the end."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests marked `wan` where the kernel allows no WAN, in CI too, before a fixture tries to build it."""
    if item.get_closest_marker("wan") and (reason := _no_wan()):
        pytest.skip(f"no WAN here: {reason}")


@pytest.fixture(autouse=True)
def leaks_are_found_in_their_test() -> Iterator[None]:
    """Let each test answer for the sockets that it forgot, which a later one's garbage collection would find."""
    before = _descriptors()
    yield
    if _descriptors() > before + 2:  # a connection has two ends; a server or a pool for several tests may have more
        gc.collect()


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.fixture
def late_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let downloads of this process wait for all servers, even if one has delivered everything before."""
    monkeypatch.setattr("coalloc.download.connections.ANSWER", PATIENCE)


@pytest.fixture
def start_gridftp() -> Iterator[Callable[..., GridFTPServer]]:
    """A function that starts GridFTP servers (arguments as of GridFTPServer); they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(GridFTPServer(*args, **kwargs))


@pytest.fixture
def gridftp_server(start_gridftp: Callable[..., GridFTPServer], tmp_path: Path) -> GridFTPServer:
    """One GridFTP server that serves `tmp_path / "export"`."""
    return start_gridftp(tmp_path / "export")


@pytest.fixture(scope="session")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A grid's CA with a host certificate and a list of revoked ones, trusted by all who get its environment."""
    authority = Authority(tmp_path_factory.mktemp("grid"))
    authority.revoke()
    return authority


@pytest.fixture(scope="session")
def alice(grid: Authority) -> Identity:
    """A user who may log in at the grid's servers."""
    user = grid.user("Alice")
    grid.map(user)
    return user


@pytest.fixture(scope="session")
def alice_proxy(alice: Identity) -> Identity:
    """Alice's proxy, as after grid-proxy-init."""
    return alice.proxy()


@pytest.fixture
def become(grid: Authority, monkeypatch: pytest.MonkeyPatch) -> Callable[[Identity], None]:
    """A function that gives this process the credential of a user with a proxy."""

    def become(proxy: Identity) -> None:
        for name, value in grid.client_env(proxy).items():
            monkeypatch.setenv(name, value)

    return become


@pytest.fixture
def as_alice(become: Callable[[Identity], None], alice_proxy: Identity) -> None:
    """Make this process act as Alice."""
    become(alice_proxy)


@pytest.fixture
def gsi_server(start_gridftp: Callable[..., GridFTPServer], tmp_path: Path, grid: Authority) -> GridFTPServer:
    """A server that requires a certificate; it serves `tmp_path / "export"`."""
    return start_gridftp(tmp_path / "export", env=grid.server_env(grid.localhost), anonymous=False)
