"""Random trees and tasks, and a model of the allowed outcomes; made from a seed, so that each can be repeated.

The model has two parts. Safety always holds: the source and all places outside of the destination are as they
were, each file has one version of a source's content or its own, and nothing is gone that the task was not to delete.
Where nothing in the trees is in each other's way the task succeeds, too, and all is as it was told.
"""

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from broker.models.tasks import Item

__all__ = ["Case", "Seen", "ours", "seen"]

NAMES = [
    *("a", "b", "c", "A", "run2", "with space", "-dash", ".hidden", "~x", "%41", "a;b", "a#b?c", "*", "[a]"),
    *("run2.coget", ".x.0123abcd.coget", f".a.coget-{'0' * 32}-7", f".a.coget-{'0' * 32}-7.coget", "data", "lock"),
    "x" * 200,
]
OURS = re.compile(r"\.coget-(?!0{32})[0-9a-f]{32}-[0-9]+")
ACCENTED = ["\u00e9", "e\u0301", "\u00c9"]
"""Names that some servers do not support."""
SIZES = [0, 1, 10, 10, 1000, 1000, 70_000, 300_000]
VANISHES = 0.2
"""Probability that a change at the source is a removal."""
OLD = 1_000_000_000
"""Modification time of the older files, in seconds since the epoch."""


class Seen(NamedTuple):
    """A snapshot of a tree: contents of files, targets of links, and directories, by their paths below its root."""

    files: Mapping[str, bytes]
    links: Mapping[str, str]
    folders: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        return frozenset({*self.files, *self.links, *self.folders})


def seen(root: Path) -> Seen:
    """Read a tree; no link is followed."""
    files, links, folders = {}, {}, set()
    for at, inner, names in os.walk(root):
        for name in (*inner, *names):
            path = Path(at, name)
            where = str(path.relative_to(root))
            if path.is_symlink():
                links[where] = str(path.readlink())
            elif path.is_dir():
                folders.add(where)
            else:
                files[where] = path.read_bytes()
    return Seen(files, links, frozenset(folders))


def ours(root: Path) -> list[Path]:
    """Return the temporary names of tasks below a directory; no user's file has such a name by chance."""
    return [path for path in root.rglob("*.coget-*") if OURS.search(path.name)]


class Case:
    """One random task: trees on both sides, each with something beside it that links may lead to.

    :param number: of those of this seed
    :param source: the root of the source's collection
    :param sink: the root of the destination's
    :param follows: whether the destination's server follows links when it writes
    :param accents: whether both understand all names
    """

    def __init__(self, seed: int, number: int, source: Path, sink: Path, follows: bool, accents: bool = False) -> None:
        self.name = f"case{seed}-{number}"
        self.chance = Random(self.name)
        self.follows = follows
        self.source, self.sink = source / self.name / "tree", sink / self.name / "tree"
        self._kinds = self.chance.choice([("file", "dir"), ("file", "dir", "link"), ("file", "dir", "link")])
        self._names = self.chance.sample(NAMES + ACCENTED * accents, 8)
        for root in (self.source, self.sink):
            self._fill(root.parent / "outside", 2)
            root.mkdir()
        self._fill(self.source, 3)
        if self.chance.random() < 0.8:
            self._resemble()
        self.options: dict[str, Any] = {
            "sync_level": self.chance.choice([None, 0, 1, 2, 3]),
            "delete_destination_extra": self.chance.random() < 0.75,
            "recursive_symlinks": self.chance.choice(["ignore", "ignore", "keep", "copy"]),
            "preserve_timestamp": self.chance.random() < 0.3,
        }
        self.items = [Item(source=f"/{self.name}/tree/", destination=f"/{self.name}/tree/")]
        self.before = seen(self.source), seen(self.sink)
        self.beside = [seen(root.parent / "outside") for root in (self.source, self.sink)]
        self.versions = {path: {content} for path, content in self._contents().items()}
        self._newer = {path for path in self.before[0].files if self._is_newer(path)}

    def _fill(self, folder: Path, deep: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in self.chance.sample(self._names, self.chance.randint(0, 5)):
            self._put(folder / name, self.chance.choice(self._kinds if deep else ("file",)), deep)

    def _put(self, path: Path, kind: str, deep: int) -> None:
        if kind == "dir":
            self._fill(path, deep - 1)
        elif kind == "link":
            path.symlink_to(self._target(path))
        else:
            path.write_bytes(self.chance.randbytes(self.chance.choice(SIZES)))
            os.utime(path, (OLD, OLD + self.chance.choice([-100, 0, 100])))

    def _target(self, path: Path) -> str:
        near = [each.name for each in path.parent.iterdir()] or ["a"]
        return self.chance.choice(
            ["nowhere", "gone/nowhere", "..", ".", "../../outside", "../outside", self.chance.choice(near)]
        )

    def _resemble(self) -> None:
        """Fill the destination with an older copy, in which some entries are missing, changed or extra.

        A task that cannot copy something deletes nothing, so that it may be in the way in some cases only.
        """
        clashes = self.chance.random() < 0.3
        for at, inner, names in os.walk(self.source):
            there = self.sink / Path(at).relative_to(self.source)
            if not there.is_dir() or there.is_symlink():
                continue
            for name in (*inner, *names):
                path, fate = Path(at, name), self.chance.random()
                if fate < 0.3 or (there / name).is_symlink() or (there / name).exists():
                    continue
                if path.is_dir() and "link" in self._kinds and fate < 0.5:
                    (there / name).symlink_to(os.path.relpath(self.sink.parent / "outside", there))
                    continue
                if fate < (0.7 if path.is_symlink() else 0.4):
                    alike = "dir" if path.is_dir() and not path.is_symlink() else "file"
                    self._put(there / name, self.chance.choice(self._kinds) if clashes else alike, 1)
                elif path.is_dir() and not path.is_symlink():
                    (there / name).mkdir()
                elif path.is_file() and not path.is_symlink():
                    shutil.copy2(path, there / name)
                    if fate < 0.7:
                        self._put(there / name, "file", 0)
            for name in self.chance.sample(self._names, self.chance.randint(0, 2)):
                if not (there / name).exists() and not (there / name).is_symlink():
                    self._put(there / name, self.chance.choice(self._kinds), 2)

    def _contents(self) -> dict[str, bytes]:
        """Return the entries that a copy may bring, by path, also through links; no deeper than any directory."""
        found: dict[str, bytes] = {}
        for at, inner, names in os.walk(self.source, followlinks=True):
            where = Path(at).relative_to(self.source)
            if len(where.parts) > 6:
                inner.clear()
            found |= {
                str(where / name): (Path(at) / name).read_bytes() for name in names if (Path(at) / name).is_file()
            }
        return found

    @property
    def _dangling(self) -> set[str]:
        """Return links of the source that dangle or lead in a circle."""
        return {link for link in self.before[0].links if not (self.source / link).exists()}

    def _is_newer(self, path: str) -> bool:
        there = self.sink / path
        return not there.is_file() or (self.source / path).stat().st_mtime > there.stat().st_mtime

    def two_paths(self, beyond: bool) -> tuple[str, str]:
        """Return two paths of the destination, mostly of existing entries; they may be equal or contain each other.

        Links that lead nowhere are left out: servers show none, and a rename replaces them there.

        :param beyond: whether some are beyond links
        """
        shown = [path for path in sorted(seen(self.sink).names) if (self.sink / path).exists()]
        folders = [path for path in shown if (self.sink / path).is_dir()]
        folders = ["", *(f"{path}/" for path in folders if beyond or not (self.sink / path).is_symlink())]
        made = [self.chance.choice(folders) + self.chance.choice(self._names) for _ in range(len(shown) + 1)]
        made = [path for path in made if not (self.sink / path).is_symlink()] or ["nothing"]
        return self.chance.choice(shown + made[:1]), self.chance.choice(shown + made)

    def change(self) -> None:
        """Rewrite a file of the source with the same length, or remove something."""
        there = [path for path in sorted(self.before[0].names) if os.path.lexists(self.source / path)]
        files = [path for path in there if path in self.before[0].files]
        if there and self.chance.random() < VANISHES:
            path = self.source / self.chance.choice(there)
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        elif files:
            path = self.source / self.chance.choice(files)
            new = self.chance.randbytes(path.stat().st_size)
            for other in self.versions:
                if (self.source / other).exists() and (self.source / other).samefile(path):
                    self.versions[other].add(new)
            path.write_bytes(new)

    @property
    def rerouted(self) -> bool:
        """Return whether a link that was written through is gone: partial data beyond it cannot be reached any more.

        A link `a` that leads to its own directory is replaced when `a/a` is written.
        """
        before, now = (self.before[1], self.beside[1]), (seen(self.sink), seen(self.sink.parent / "outside"))
        return self.follows and any(
            then.links.keys() - there.links.keys() for then, there in zip(before, now, strict=True)
        )

    @property
    def plain(self) -> bool:
        """Return whether no entry is in the way: no link, and no file in the place of a directory or the reverse.

        Nor a directory `run2.coget` with a `lock`, which may be partial data of another file: nothing goes into it.
        """
        (source, sink) = self.before
        linked = source.links or sink.links
        partial = any(f"{path}/lock" in sink.names for path in source.folders if path.endswith(".coget"))
        crossed = source.files.keys() & sink.folders or source.folders & sink.files.keys()
        return not (linked or crossed or partial)

    def check(
        self, status: str, why: str | None, calm: bool = True, changed: bool = False, hides: bool = False
    ) -> None:
        """Compare the tree with the allowed outcomes.

        :param calm: whether the test injected no failures
        :param changed: whether files of the source changed meanwhile
        :param hides: whether the source's server lists no links that lead nowhere, and counts none
        """
        source, sink = seen(self.source), seen(self.sink)
        old_source, old = self.before
        assert changed or source == old_source
        assert source.names <= old_source.names
        self._check_outside()
        led = set().union(*self.versions.values()) if self.follows and old.links else set()
        for path, content in sink.files.items():
            allowed = {old.files[path]} if path in old.files else set()
            assert content in allowed | led | self.versions.get(path, set()), f"{path} has what it should not have"
        for path in old.names - sink.names:
            assert self.options["delete_destination_extra"], f"{path} is gone"
            parts = Path(path).parts
            above = ["/".join(parts[: i + 1]) for i in range(len(parts))]
            replaced = any(each in old.files.keys() | old.links.keys() for each in above) and path in source.names
            named = source.names - self._dangling if hides else source.names
            assert replaced or any(each not in named for each in above), f"{path} is gone"
        if self.plain and calm and not changed:
            assert status == "SUCCEEDED", why
            self._check_all(sink)

    def check_deleted(self, path: str, status: str, why: str | None) -> None:
        """Compare the tree with the allowed outcomes after a deletion of everything at a path of the destination.

        A directory may stay with a link that leads nowhere: Globus servers do not list such.
        """
        sink, (old_source, old) = seen(self.sink), self.before
        assert (seen(self.source), [seen(root.parent / "outside") for root in (self.source, self.sink)]) == (
            old_source,
            self.beside,
        )
        kept = {name for name in old.names if name != path and not name.startswith(f"{path}/")}
        assert sink.names >= kept
        assert status == "SUCCEEDED" or old.links, why
        assert status == "FAILED" or sink.names == kept
        assert all(sink.files[name] == old.files[name] for name in sink.files)

    def _check_outside(self) -> None:
        there, beside = (seen(root.parent / "outside") for root in (self.source, self.sink))
        assert there == self.beside[0]
        if not self.follows:
            assert beside == self.beside[1]
        assert beside.names >= self.beside[1].names, "something outside is gone"

    def _check_all(self, sink: Seen) -> None:
        """Check the result of a task without obstacles."""
        source, old = self.before
        wanted = {path: self._wanted(path) for path in source.files}
        if not self.options["delete_destination_extra"]:
            wanted = {**old.files, **wanted}
        assert sink.files.keys() == wanted.keys()
        for path, content in wanted.items():
            assert sink.files[path] == content, f"{path} is not as it should be"
        assert sink.folders >= source.folders
        assert self.options["delete_destination_extra"] is False or sink.folders == source.folders

    def _wanted(self, path: str) -> bytes:
        source, old = self.before
        new, there, level = source.files[path], old.files.get(path), self.options["sync_level"]
        if there is None or level in (None, 3) or (level > 0 and len(there) != len(new)):
            return new
        return new if level == 2 and path in self._newer else there
