"""Options that take numbers: NaN and infinity are none, for any command."""

from collections.abc import Iterator

import click
import pytest

from broker.cli import broker
from coalloc.cli.main import coget as client
from coalloc.util.finite_range import FiniteRange
from tests.support.coget import coget


def ranges(command: click.Command, name: str) -> Iterator[tuple[str, click.ParamType]]:
    """Yield all options of a command and its subcommands that take a fraction, by the words before them."""
    for parameter in command.params:
        if isinstance(parameter.type, click.types.FloatParamType):
            yield f"{name} {parameter.opts[0]}", parameter.type
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            if found := command.get_command(context, each):
                yield from ranges(found, f"{name} {each}")


def test_no_option_takes_nan():
    found = dict([*ranges(client, "coget"), *ranges(broker, "coget-broker")])
    assert {"coget get --sure", "coget stream --sure", "coget-broker token create --days"} <= found.keys()
    assert [name for name, kind in found.items() if not isinstance(kind, FiniteRange)] == []


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e999"])
def test_nan_and_infinity_are_refused(tmp_path, number):
    done = coget(["get", "--by", "+1 min", "--sure", number, "ftp://127.0.0.1:9/x"], tmp_path)
    assert done.returncode == 2
    assert "Invalid value for '--sure'" in done.stderr
    with pytest.raises(click.BadParameter):
        FiniteRange(0).convert(number, None, None)
