"""The man pages and completion scripts of all programs, for packages: `python -m scripts.shared_files DIRECTORY`."""

import sys
from pathlib import Path

import click

from broker import cli as broker_cli
from coalloc.cli.completion_scripts import script
from coalloc.cli.main import coget
from coalloc.depot.daemon.cli import depot
from scripts.man_pages import pages

__all__ = ["main"]

PLACES = {
    "bash": "bash-completion/completions/{}",
    "zsh": "zsh/site-functions/_{}",
    "fish": "fish/vendor_completions.d/{}.fish",
}
"""Where each shell looks for a program's completion, below /usr/share."""
PROGRAMS: tuple[tuple[str, click.Command, str | None], ...] = (
    ("coget", coget, "get"),
    ("coget-broker", broker_cli.broker, None),
    ("coget-depot", depot, None),
)
"""Each program with its commands, and the command that runs if none is named."""


def main(share: Path) -> None:
    """Write the files of all programs below a directory such as /usr/share."""
    manual = share / "man" / "man1"
    manual.mkdir(parents=True, exist_ok=True)
    for name, command, default in PROGRAMS:
        for title, page in pages(command, click.Context(command, info_name=name)):
            (manual / f"{title}.1").write_text(page, encoding="utf-8")
        for shell, place in PLACES.items():
            path = share / place.format(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(script(shell, name, command, default) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
