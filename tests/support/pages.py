"""The blocks of a page of the docs.

Indented blocks are commands. Fenced blocks are files, if the text before them says `Save this as` and a name; what the
commands before them print, if they name no language; otherwise parts of programs and settings.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Block", "blocks"]

BLOCK = re.compile(
    r"^ *```(?P<language>\w*)\n(?P<fenced>.*?)^ *```$|(?:^#[^\n]*\n|^\n)(?P<indented>(?:^ {4,}[^\n]*\n|^\n(?= {4}))+)",
    re.MULTILINE | re.DOTALL,
)
SAVED = re.compile(r"[Ss]ave (?:this|it) as\s+`([\w./~-]+)`[^`]*$")


@dataclass(frozen=True)
class Block:
    """A block.

    :ivar kind: what it is
    :ivar language: language of a program or settings
    :ivar name: name of the file
    """

    kind: Literal["commands", "file", "printed", "text", "part"]
    text: str
    language: str = ""
    name: str = ""

    @property
    def commands(self) -> list[str]:
        """The commands, each with all its lines."""
        found = [""]
        for line in self.text.splitlines():
            found[-1] += line + "\n"
            if _complete(found[-1]):
                found.append("")
        return [each.strip() for each in found if shlex.split(each, comments=True)]


def _complete(command: str) -> bool:
    if command.endswith("\\\n"):
        return False
    try:
        shlex.split(command, comments=True)
    except ValueError:  # a quotation that the next lines end
        return False
    return True


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        if found["indented"]:
            yield Block("commands", textwrap.dedent(found["indented"]))
            continue
        content, language = textwrap.dedent(found["fenced"]), found["language"]
        saved = SAVED.search(text[: found.start()].rpartition("```")[2])
        if saved:
            yield Block("file", content, language, saved[1])
        else:
            kind = {"": "printed", "text": "text"}.get(language, "part")
            yield Block(kind, content, language)  # type: ignore[arg-type]
