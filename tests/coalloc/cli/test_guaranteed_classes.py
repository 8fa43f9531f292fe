"""YAML files with classes of files for `coget collect --guarantee`."""

import click
import pytest

from coalloc.cli.collect import collect
from coalloc.cli.guaranteed_classes import parse
from coalloc.collect.values import GuaranteedClass
from coalloc.errors import UsageError


def parsed(*values):
    return parse(click.Context(collect), collect.params[0], values)


def test_classes_of_a_file_and_of_options_keep_their_order(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text("'num/*': {records: 25, size: 40 kB, sure: 99}\n'*.root': {rate: 5 MB/s}\n")
    assert parsed("*=1 kB/s", str(path), "x=2 kB/s@90") == (
        GuaranteedClass("*", 1000, 0.95),
        GuaranteedClass("num/*", 1e6, 0.99),
        GuaranteedClass("*.root", 5e6, 0.95),
        GuaranteedClass("x", 2000, 0.9),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "classes.yaml: it has no classes"),
        ("- x", "line 1: a list is not a mapping"),
        ("x: {}", "line 1: x: it needs a rate"),
        ("x: {rate: 1 MB/s, size: 1 kB}", "line 1: x: it needs a rate"),
        ("x: {records: 25}", "line 1: x: it needs a rate"),
        ("y: {rate: 1}\nx: {rate: fast}", "line 2: x, rate: 'fast' is not understood"),
        ("x: {records: .nan, size: 1}", "line 1: x, records: it is not a quantity"),
        ("x: {rate: 1, colour: red}", "line 1: x, colour: unknown key"),
        ("x: {rate: 1}\nx: {rate: 2}", "line 2: x: it occurs a second time"),
        ("x: [", "it is not YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(tmp_path, text, message):
    path = tmp_path / "classes.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"classes\.yaml") as refused:
        parsed(str(path))
    assert message in refused.value.message
    assert refused.value.remedy


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read .*none\.yml: No such file"):
        parsed(str(tmp_path / "none.yml"))
