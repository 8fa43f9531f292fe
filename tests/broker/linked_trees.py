"""A random tree full of links, and a model of the places that a user may reach in it, from the operating system."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Literal

__all__ = ["LinkedTree"]

Permissions = Literal["r", "rw"]
FOLDERS, FILES, LINKS = 12, 14, 18
STEPS = 4


class LinkedTree:
    """Directories, files and links of a collection, and a directory beside it that is granted to no user.

    :param home: where all of it is made; the collection is `home/data`, and `home/alias` is a link to that
    """

    def __init__(self, home: Path, chance: Random) -> None:
        self.root = home / "data"
        self.chance = chance
        self._outside = home / "outside"
        self._outside.mkdir(parents=True)
        (self._outside / "theirs").write_text(f"<{self._outside}>")
        self.root.mkdir()
        (home / "alias").symlink_to("data")
        folders = [self.root]
        for number in range(FOLDERS):
            folders.append(chance.choice(folders) / f"d{number}")
            folders[-1].mkdir()
        files = [chance.choice(folders) / f"f{number}" for number in range(FILES)]
        for path in files:
            path.write_text(f"<{path}>")
        known = [*folders, *files, self._outside, self._outside / "theirs", home / "nowhere"]
        for number in range(LINKS):
            path = chance.choice(folders) / f"l{number}"
            path.symlink_to(self._target(path, chance.choice(known)))
            known.append(path)  # chains
        (folders[-1] / "self").symlink_to("self")
        (folders[-1] / "here").symlink_to(".")
        self.grants: dict[str, Permissions] = {}
        inner = sorted(str(path.relative_to(self.root)) for path in folders[1:])
        for name in chance.sample(inner, 4):
            self.grants[f"/{name}/"] = chance.choice(["r", "rw", "rw"])
        if chance.random() < 0.2:
            self.grants["/"] = "r"

    def _target(self, path: Path, aim: Path) -> str:
        """Return a link's text: absolute, absolute through the alias, relative, or relative with needless `..`."""
        if self.chance.random() < 0.3:
            return (
                str(aim).replace(f"{self.root}", f"{self.root.parent}/alias")
                if self.chance.random() < 0.3
                else str(aim)
            )
        relative = os.path.relpath(aim, path.parent)
        return (
            f"../{path.parent.name}/{relative}" if path.parent != self.root and self.chance.random() < 0.3 else relative
        )

    def may(self, path: str, writes: bool = False) -> bool:
        """Return whether a path is granted, wherever it leads."""
        fits = [each for folder, each in self.grants.items() if f"{path.rstrip('/')}/".startswith(folder)]
        return any("w" in each or not writes for each in fits)

    def reaches(self, end: str | None, writes: bool = False) -> bool:
        """Return whether the user may reach the place where a path ends; always true for users who may reach all."""
        return self.may("/", writes) or (end is not None and self.may(end, writes))

    def real(self, path: str) -> str | None:
        """Return the real path in the collection; None outside of it or in a circle."""
        try:
            place = os.path.realpath(self._at(path), strict=True)
        except OSError:
            return None
        return self._inside(place)

    def entered(self, path: str) -> str | None:
        """Return the real path, without following the last part, which may be missing."""
        above, _, name = path.rstrip("/").rpartition("/")
        folder = self.real(above or "/")
        return folder and f"{folder.rstrip('/')}/{name}"

    def is_folder(self, path: str) -> bool:
        return Path(self._at(path)).is_dir()

    def is_link(self, path: str) -> bool:
        return Path(self._at(path.rstrip("/"))).is_symlink()

    def names(self, path: str) -> set[str]:
        """Return the names that a server lists in a directory: no dangling links."""
        return {each.name for each in Path(self._at(path)).iterdir() if _leads(each)}

    def walk(self) -> str:
        """Return a random path from a granted directory over links, wherever they lead."""
        path = self.chance.choice(sorted(self.grants)).rstrip("/")
        for _ in range(self.chance.randrange(STEPS + 1)):
            try:
                names = sorted(each.name for each in Path(self._at(path or "/")).iterdir())
            except OSError:
                break
            links = [name for name in names if self.is_link(f"{path}/{name}")]
            if not names:
                break
            path += "/" + self.chance.choice(links if links and self.chance.random() < 0.5 else names)
        return path or "/"

    def _at(self, path: str) -> str:
        return f"{self.root}{path}".rstrip("/")

    def _inside(self, place: str) -> str | None:
        if place == str(self.root):
            return "/"
        return place.removeprefix(str(self.root)) if place.startswith(f"{self.root}/") else None

    def closed(self, writes: bool) -> dict[str, Any]:
        """Return all places that the user may not read (or not write), with their content."""
        found: dict[str, Any] = {}
        for folder in (self.root, self._outside):
            for at, folders, files in os.walk(folder):
                for name in [*folders, *files]:
                    place = f"{at}/{name}"
                    path = self._inside(place)
                    if not self.reaches(path, writes) and not self._is_ours(path):
                        found[place] = _content(place)
        return found

    def _is_ours(self, path: str | None) -> bool:
        """Return whether a path is the temporary name of a granted path, in the same directory."""
        folder, _, name = (path or "").rpartition("/")
        found = re.fullmatch(r"\.(.+)\.coget-[0-9a-f]{32}-[0-9-]+", name)
        return found is not None and self.may(f"{folder}/{found[1]}", writes=True)

    def leaked(self, secrets: Mapping[str, Any]) -> Sequence[str]:
        """Return the places that the user may read although they contain content that the user may not."""
        words = {content for content in secrets.values() if content and content.startswith("<")}
        return [
            f"{at}/{name}"
            for at, _, files in os.walk(self.root)
            for name in files
            if self.may(self._inside(f"{at}/{name}") or "") and _content(f"{at}/{name}") in words
        ]


def _content(place: str) -> str:
    """Return the content of a place, without following links."""
    path = Path(place)
    if path.is_symlink():
        return f"-> {path.readlink()}"
    return "folder" if path.is_dir() else path.read_text()


def _leads(path: Path) -> bool:
    """Return whether a path leads to something, not in a circle."""
    try:
        return path.exists()
    except OSError:
        return False
