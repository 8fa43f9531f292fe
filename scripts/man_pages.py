"""Man pages of click's commands.

click-man finds no commands that are loaded late, and keeps click's control characters.
"""

import inspect
import os
import time
from collections.abc import Iterator
from importlib.metadata import version

import click

__all__ = ["pages"]


def pages(command: click.Command, ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of the man page of a command, and of those below it."""
    below = []
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child and not child.hidden:
                below.append((child, click.Context(child, info_name=name, parent=ctx)))
    yield _name(ctx), "\n".join(_lines(command, ctx, [(_name(nested), child) for child, nested in below])) + "\n"
    for child, nested in below:
        yield from pages(child, nested)


def _name(ctx: click.Context) -> str:
    return ctx.command_path.replace(" ", "-")


def _built() -> str:
    """Return the date of the build, which builds that can be repeated set by a variable."""
    return time.strftime("%Y-%m-%d", time.gmtime(float(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))


def _lines(command: click.Command, ctx: click.Context, below: list[tuple[str, click.Command]]) -> Iterator[str]:
    text = inspect.cleandoc(command.help or "")
    first, *paragraphs = text.split("\n\n")
    yield f'.TH "{_name(ctx).upper()}" 1 "{_built()}" "coget {version("coget")}" "coget"'
    yield from (".SH NAME", f"{_escaped(_name(ctx))} \\- {_escaped(' '.join(first.split()).rstrip('.'))}")
    yield from (".SH SYNOPSIS", f"\\fB{_escaped(ctx.command_path)}\\fR")
    yield _escaped(" ".join(command.collect_usage_pieces(ctx)))
    yield ".SH DESCRIPTION"
    for number, paragraph in enumerate((first, *paragraphs)):
        yield from [".PP"] if number else []
        yield from _paragraph(paragraph)
    if below:
        yield ".SH COMMANDS"
        for name, child in below:
            yield from (".TP", f"\\fB{_escaped(name)}\\fR(1)", _escaped(child.get_short_help_str(limit=200)))
    yield ".SH OPTIONS"
    for param in command.get_params(ctx):
        if record := param.get_help_record(ctx):
            yield from (".TP", f"\\fB{_escaped(record[0])}\\fR", *_wrapped(record[1]))


def _paragraph(text: str) -> Iterator[str]:
    if not text.startswith("\b"):
        yield from _wrapped(text)
        return
    yield ".nf"
    yield from (_escaped(line) for line in text.splitlines()[1:])
    yield ".fi"


def _wrapped(text: str) -> Iterator[str]:
    for line in text.splitlines() or ["See above."]:
        if words := " ".join(line.split()):
            yield _escaped(words)


def _escaped(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    return f"\\&{escaped}" if escaped.startswith((".", " ")) else escaped
