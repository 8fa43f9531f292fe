"""Modules that are loaded at their first use."""

import inspect
import subprocess
import sys

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coalloc.cli.late_modules import LATE, cleandoc
from coalloc.cli.main import COMMANDS, coget
from tests.support.coget import LIFE_SECONDS

LATER = """
import sys, threading
from coalloc.cli import late_modules
late_modules.install()
import asyncio
def late():
    return {name for name in late_modules.LATE if type(sys.modules[name]).__name__ == "_LateModule"}
"""


def run(program):
    command = [sys.executable, "-c", LATER + program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIFE_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_late_modules_are_loaded_at_their_first_use():
    program = """
print(*sorted(late()))
import ssl, asyncio.sslproto
assert isinstance(ssl.create_default_context(), ssl.SSLContext)
assert asyncio.sslproto.SSLAgainErrors == (ssl.SSLWantReadError, ssl.SSLSyscallError)
from inspect import signature
assert str(signature(late)) == "()"
print(*sorted(late()))
"""
    assert run(program) == sorted(LATE)


def test_several_threads_may_use_one_first():
    program = """
found = []
threads = [threading.Thread(target=lambda: found.append(asyncio.base_events.ssl.SSLContext)) for _ in range(20)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(found), len(set(found)))
"""
    assert run(program) == ["20", "1"]


def test_a_module_that_could_not_be_loaded_is_loaded_at_the_next_use():
    program = """
import resource
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
try:
    asyncio.base_events.ssl.SSLContext
except OSError:
    print("failed")
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
print(asyncio.base_events.ssl.SSLContext.__name__)
"""
    assert run(program) == ["failed", "SSLContext"]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_texts_are_the_same_as_with_inspect(name):
    command = coget.get_command(click.Context(coget), name)
    texts = [command.callback.__doc__, *(getattr(param, "help", None) for param in command.params)]
    assert texts
    for text in filter(None, texts):
        assert cleandoc(text) == inspect.cleandoc(text)


@given(st.lists(st.text("ab \t", max_size=6), max_size=6).map("\n".join))
def test_a_docstring_is_cleaned_as_by_inspect(text):
    def shown(cleaned):
        return [line.rstrip() for line in cleaned.splitlines() if line.strip()]

    assert shown(cleandoc(text)) == shown(inspect.cleandoc(text))
