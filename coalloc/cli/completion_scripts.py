"""Completion scripts for bash, zsh and fish, written from the commands of click.

A script holds all commands, options and choices, so that the tab key starts no program. Where a value is not a choice,
the shell completes names of files.
"""

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import click

__all__ = ["SHELLS", "script"]


class _Completed(NamedTuple):
    """The words that may follow a command.

    :ivar path: the command, with the commands above it
    :ivar words: its subcommands, choices and options, each with its help text
    :ivar values: the choices for the value of an option; none if it takes a file or anything else
    :ivar is_group: whether subcommands follow
    """

    path: str
    words: dict[str, str]
    values: dict[str, tuple[str, ...]]
    is_group: bool


def script(shell: str, program: str, command: click.Command, default: str | None = None) -> str:
    """Return the completion script of a program.

    :param default: the subcommand that runs if the first word is not a subcommand
    """
    levels = list(_levels(command, click.Context(command, info_name=program), default))
    return SHELLS[shell](program, levels, f"{program} {default}" if default else None)


def _levels(command: click.Command, ctx: click.Context, default: str | None = None) -> Iterator[_Completed]:
    words: dict[str, str] = {}
    values: dict[str, tuple[str, ...]] = {}
    below = []
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            child = command.get_command(ctx, name)
            if child and not child.hidden:
                words[name] = child.get_short_help_str()
                below.append((child, click.Context(child, info_name=name, parent=ctx)))
    for owner in (command, *(child for child, _ in below if child.name == default)):
        _add_parameters(owner, ctx, words, values)
    yield _Completed(ctx.command_path, words, values, bool(below))
    for child, nested in below:
        yield from _levels(child, nested)


def _add_parameters(
    command: click.Command, ctx: click.Context, words: dict[str, str], values: dict[str, tuple[str, ...]]
) -> None:
    for param in command.get_params(ctx):
        choices = tuple(map(str, param.type.choices)) if isinstance(param.type, click.Choice) else ()
        if isinstance(param, click.Option) and not param.hidden:
            names = (*param.opts, *param.secondary_opts)
            words |= dict.fromkeys(names, _first_sentence(param.help or ""))
            if not param.is_flag and not param.count:
                values |= dict.fromkeys(names, choices)
        elif isinstance(param, click.Argument):
            words |= dict.fromkeys(choices, "")


def _first_sentence(text: str) -> str:
    return " ".join(text.split("  [")[0].split()).split(". ")[0].rstrip(".")


def _deeper(levels: Iterable[_Completed]) -> list[str]:
    """Return the quoted lines `COMMAND WORD` at which a subcommand begins."""
    return [shlex.quote(level.path) for level in levels if " " in level.path]


def _options(levels: Iterable[_Completed]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each quoted line `COMMAND OPTION` that a value follows, with the choices for the value."""
    for level in levels:
        for option, choices in level.values.items():
            yield shlex.quote(f"{level.path} {option}"), choices


def _bash(program: str, levels: list[_Completed], default: str | None) -> str:
    name = f"_{program.replace('-', '_')}"
    words = [f"        {shlex.quote(level.path)}) words={shlex.quote(' '.join(level.words))} ;;" for level in levels]
    return "\n".join(
        (
            f"# Completion of {program} in bash.",
            f"{name}() {{",
            f"    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} place={program}",
            "    local i words= unless=",
            "    if [[ $current == '=' ]]; then",
            "        current=",
            "    elif [[ $previous == '=' ]]; then",
            "        previous=${COMP_WORDS[COMP_CWORD - 2]}",
            "    fi",
            "    for ((i = 1; i < COMP_CWORD; i++)); do",
            '        case "$place ${COMP_WORDS[i]}" in',
            f'        {"|".join(_deeper(levels))}) place+=" ${{COMP_WORDS[i]}}" ;;',
            *([f"        '{program} '[!-]*) place='{default}' ;;"] if default else ()),
            "        esac",
            "    done",
            '    case "$place $previous" in',
            *(f"    {line}) words={shlex.quote(' '.join(choices))} ;;" for line, choices in _options(levels)),
            "    *)",
            "        case $place in",
            *words,
            "        esac",
            "        ;;",
            "    esac",
            "    [[ $current == -* ]] || unless='-*'",
            '    COMPREPLY=($(compgen -W "$words" -X "$unless" -- "$current"))',
            "}",
            f"complete -o default -F {name} {program}",
        )
    )


def _zsh(program: str, levels: list[_Completed], default: str | None) -> str:
    name = f"_{program.replace('-', '_')}"
    return "\n".join(
        (
            f"#compdef {program}",
            f"{name}() {{",
            f"    local word place={program}",
            "    local -a before=(${words[2,CURRENT-1]}) offered",
            "    local previous=${before[-1]}",
            "    for word in $before; do",
            '        case "$place $word" in',
            f'        {"|".join(_deeper(levels))}) place+=" $word" ;;',
            *([f"        '{program} '[^-]*) place='{default}' ;;"] if default else ()),
            "        esac",
            "    done",
            "    if compset -P '--*='; then",
            "        previous=${IPREFIX%=}",
            "    fi",
            '    case "$place $previous" in',
            *_zsh_cases(levels),
            "        esac",
            "        [[ $PREFIX == -* ]] || offered=(${offered:#-*})",
            f"        _describe {program} offered",
            f"        [[ $PREFIX == -* ]] || case $place in {_groups(levels, default)}) ;; *) _files ;; esac",
            "        ;;",
            "    esac",
            "}",
            f'if [[ $funcstack[1] == _{program} ]]; then {name} "$@"; else compdef {name} {program}; fi',
        )
    )


def _zsh_cases(levels: list[_Completed]) -> Iterator[str]:
    for line, choices in _options(levels):
        yield f"    {line}) {f'compadd -- {shlex.join(choices)}' if choices else '_files'} ;;"
    yield from ("    *)", "        case $place in")
    for level in levels:
        yield f"        {shlex.quote(level.path)}) offered=({shlex.join(map(_described, level.words.items()))}) ;;"


def _groups(levels: list[_Completed], default: str | None) -> str:
    """Return a pattern of the commands that take no files."""
    found = [level.path for level in levels if level.is_group and not (default and " " not in level.path)]
    return "|".join(map(shlex.quote, found or [""]))


def _described(word: tuple[str, str]) -> str:
    name, text = word
    return f"{name.replace(':', chr(92) + ':')}:{text}" if text else name


def _fish(program: str, levels: list[_Completed], default: str | None) -> str:
    name = f"__{program.replace('-', '_')}"
    without_command = (
        f"            case '{program} -*'",
        f"            case '{program} *'",
        f"                set place '{default}'",
    )
    return "\n".join(
        (
            f"# Completion of {program} in fish.",
            f"function {name}",
            "    set -l before (commandline -opc)",
            f"    set -l place {program}",
            "    for word in $before[2..]",
            '        switch "$place $word"',
            f"            case {' '.join(_deeper(levels))}",
            '                set place "$place $word"',
            *(without_command if default else ()),
            "        end",
            "    end",
            '    switch "$place $before[-1]"',
            *_fish_cases(levels),
            "            end",
            "    end",
            "end",
            f"complete --command {program} --arguments '({name})'",
        )
    )


def _fish_cases(levels: list[_Completed]) -> Iterator[str]:
    for line, choices in _options(levels):
        yield f"        case {line}"
        if choices:
            yield f"            printf '%s\\n' {shlex.join(choices)}"
    yield from ("        case '*'", '            switch "$place"')
    for level in levels:
        yield f"                case {shlex.quote(level.path)}"
        words = " ".join(_fish_quoted(each) for word in level.words.items() for each in word)
        yield f"                    printf '%s\\t%s\\n' {words}"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SHELLS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""For each shell, the function that writes its script."""
