"""The group of commands: the short form, help and usage errors."""

import json
import re
from typing import get_args

import pytest

from coalloc import api
from coalloc.cli import options
from coalloc.cli.main import coget, invoke
from tests.support.coget import coget as coget_command

COMMANDS = ("completion", "doctor", "get", "history", "plan")


def test_help_lists_every_command_and_exit_status(tmp_path):
    result = coget_command(["--help"], tmp_path)
    assert result.returncode == 0
    assert all(re.search(rf"^  {command} ", result.stdout, re.M) for command in COMMANDS)
    assert all(re.search(rf"\b{status}  \w", result.stdout) for status in (*range(9), 130))


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_teaches_by_example(command, capsys):
    assert invoke([command, "--help"]) == 0
    output = capsys.readouterr().out
    assert f"coget {command}" in output.partition("\n\n")[2]


def test_without_words_the_help_is_a_usage_error(capsys):
    assert invoke([]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: coget" in captured.err


@pytest.mark.parametrize(
    ("words", "command", "sources"),
    [
        (["ftp://a/x"], "get", ("ftp://a/x",)),
        (["-o", "plan", "ftp://a/x"], "get", ("ftp://a/x",)),
        (["./plan", "history"], "get", ("./plan", "history")),
        (["plan", "./plan"], "plan", ("./plan",)),
        (["get", "get"], "get", ("get",)),
    ],
)
def test_get_is_run_unless_the_first_word_is_a_command(words, command, sources):
    with coget.make_context("coget", list(words)) as ctx:
        name, found, rest = coget.resolve_command(ctx, [*ctx._protected_args, *ctx.args])
        assert name == command
        with found.make_context(name, rest, parent=ctx) as nested:
            assert nested.params["sources"] == sources


def test_the_choices_are_those_of_the_api():
    assert get_args(api.Strategy) == options.STRATEGIES
    assert get_args(api.Engine) == options.ENGINES


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["get"], "SOURCE"),
        (["ftp://a/x", "--streams", "0"], "--streams"),
        (["ftp://a/x", "--blocks", "none"], "--blocks"),
        (["ftp://a/x", "--nonsense"], "--nonsense"),
        (["ftp://a/x", "--strategy", "clever"], "clever"),
        (["ftp://a/x", "--blocks", "4"], "--blocks makes no sense with --strategy adaptive"),
        (["ftp://a/x", "--strategy", "single", "--max-sources", "2"], "--max-sources 2"),
        (["ftp://a/x", "--engine", "globus-url-copy", "--data-host", "h"], "--data-host"),
        (["plan", "ftp://a/x", "--metalink", "--json"], "--metalink"),
        (["completion", "tcsh"], "tcsh"),
    ],
)
def test_usage_errors_name_the_argument_and_have_a_remedy(words, named, capsys):
    assert invoke(words) == 2
    message, remedy = capsys.readouterr().err.splitlines()
    assert message.startswith("coget: ")
    assert named in message
    assert remedy.strip()


def test_usage_errors_are_documents_too(capsys):
    assert invoke(["get", "--json"]) == 2
    captured = capsys.readouterr()
    assert json.loads(captured.out)["error"]["code"] == "usage"
    assert captured.err.startswith("coget: Missing argument")
