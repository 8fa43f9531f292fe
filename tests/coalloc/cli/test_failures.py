"""Exceptions become a message and an exit status."""

import json

import click
import pytest

from coalloc import errors
from coalloc.cli.failures import reported
from coalloc.cli.interrupts import Interrupted


def raiser(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.UsageError("m", "r"), 2),
        (errors.NothingToFetchFrom("m", "r"), 3),
        (errors.VerificationError("m", "r"), 4),
        (errors.TransferFailed("m", "r"), 5),
        (errors.SinkError("m", "r"), 6),
        (errors.NotAllowed("m", "r"), 7),
        (errors.TargetInUse("m", "r"), 8),
        (Interrupted("m", "r"), 130),
        (click.UsageError("m"), 2),
        (click.FileError("f", "m"), 2),
    ],
)
def test_errors_have_the_documented_status(error, status, capsys):
    assert reported(raiser(error), []) == status
    captured = capsys.readouterr()
    assert captured.err.startswith("coget: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_message_and_remedy_follow_each_other_on_lines(capsys):
    reported(raiser(errors.NothingToFetchFrom("none of 2:", "look there", ["ftp://a: gone", "ftp://b: shut"])), [])
    assert capsys.readouterr().err == "coget: none of 2:\n  ftp://a: gone\n  ftp://b: shut\n  look there\n"


def test_servers_words_cannot_control_the_terminal(capsys):
    reported(raiser(errors.ServerSays("550 no\r\nsuch \x1b[2Jfile", "")), [])
    assert capsys.readouterr().err == "coget: 550 no\\r\\nsuch \\x1b[2Jfile\n"


def test_with_json_the_error_is_a_document(capsys):
    assert reported(raiser(errors.SinkError("full", "make room")), ["get", "--json"]) == 6
    expected = {"error": {"code": "local_disk", "message": "full", "remedy": "make room", "transient": False}}
    assert json.loads(capsys.readouterr().out) == expected


def test_an_interruption_seen_by_click_is_130(capsys):
    assert reported(raiser(click.Abort()), []) == 130
    assert capsys.readouterr().err == "coget: interrupted\n"


def test_a_defect_asks_to_be_reported(capsys, monkeypatch):
    monkeypatch.delenv("COGET_DEBUG", raising=False)
    assert reported(raiser(ZeroDivisionError("oh")), []) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("coget: a defect of coget: ZeroDivisionError: oh\n")
    assert "COGET_DEBUG=1" in stderr
    assert "Traceback" not in stderr


def test_a_defect_shows_its_traceback_when_asked(capsys, monkeypatch):
    monkeypatch.setenv("COGET_DEBUG", "1")
    assert reported(raiser(ZeroDivisionError("oh")), []) == 1
    assert "Traceback" in capsys.readouterr().err


def test_the_status_of_a_command_is_passed_on():
    assert reported(lambda: None, []) == 0
    assert reported(lambda: 3, []) == 3
