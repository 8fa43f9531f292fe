"""fsspec's file system `coget://` and `replica://`: read-only, asynchronous, with several replicas of each file.

Importing it loads only fsspec; coget is imported when a file is used. Connections are made lazily, for each event loop
and process, and are never pickled.

`names` describes the names. Reads at random go through `api.open_reader`, whole files through `api.download`.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsspec.asyn import AsyncFileSystem, get_loop, sync
from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile

if TYPE_CHECKING:
    from coalloc.model.progress import Snapshot
    from coalloc.plugins.blocks_ahead import BlocksAhead
    from coalloc.plugins.fsspec_readers import OpenFile, Readers
    from coalloc.resolve.trees import WalkedTree

__all__ = ["CogetFile", "CogetFileSystem"]

BLOCK, CACHED = 256 << 10, 128
"""Default bytes of a cached block, and number of blocks in the cache; `blocks_ahead` requests several together."""
SOON = 8 << 20
"""Maximum number of bytes of one read that are requested together."""
READ_ONLY = "coget:// is read-only"


class CogetFileSystem(AsyncFileSystem):  # type: ignore[misc]
    """Files by dataset, URL, several URLs of replicas, or Metalink.

    :param replicas: URLs of directories with the same files, or, for an empty path, of replicas of one file; the paths
        of this file system are relative to each
    :param broker: the address of the broker that knows datasets; None for the user's usual one
    :param fo: the URL in a chain, `coget::URL`; set by fsspec
    """

    protocol = ("coget", "replica")
    root_marker = ""
    blocksize = BLOCK

    def __init__(
        self,
        replicas: Sequence[str] | str = (),
        broker: str | None = None,
        fo: str | None = None,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._pid: int
        if fo is not None and "://" not in fo:
            raise ValueError(f"cannot read {target_protocol}:// in a chain: write coget://{target_protocol}://...")
        if target_options:  # such as headers: to ignore them would end in an error that nobody understands
            raise ValueError(f"coget uses no options of {target_protocol}:// in a chain: leave them out")
        self._roots = (replicas,) if isinstance(replicas, str) else tuple(replicas) if fo is None else (fo,)
        self._broker = broker
        self._readers: dict[tuple[int, asyncio.AbstractEventLoop], Readers] = {}

    @property
    def loop(self) -> Any:
        """The event loop of this process: after a fork, fsspec starts another one in the child."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._loop = None if self.asynchronous else get_loop()
        return self._loop

    @property
    def _here(self) -> "Readers":
        """The open files of the running event loop of this process."""
        from coalloc.plugins.fsspec_readers import Readers

        key = os.getpid(), asyncio.get_running_loop()
        if key not in self._readers:
            for old in [each for each in self._readers if each[0] == key[0] and each[1].is_closed()]:
                del self._readers[old]
            self._readers[key] = Readers(self._roots, self._broker)
        return self._readers[key]

    async def _info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        with os_errors(path):
            return await self._here.info(path)

    async def _ls(
        self, path: str, detail: bool = True, top: str = "", tree: "WalkedTree | None" = None, **kwargs: Any
    ) -> list[Any]:
        path = self._strip_protocol(path)
        with os_errors(path):
            found = await self._here.entries(path)
        if tree:  # outside, as fsspec leaves out directories that end with an OSError
            folder = f"{path.removeprefix(top)}/".lstrip("/")
            tree.enter(folder)
            tree.add(folder, [each["name"].removeprefix(path) for each in found])
        return found if detail else sorted(each["name"] for each in found)

    async def _walk(self, path: str, *arguments: Any, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield the directories below a path as fsspec does, which has no limits for depth and number."""
        from coalloc.resolve.trees import WalkedTree

        path = self._strip_protocol(path)
        kwargs = {"top": path, "tree": WalkedTree(path)} | kwargs
        with os_errors(path):
            async for found in super()._walk(path, *arguments, **kwargs):
                yield found

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        path = self._strip_protocol(path)
        with os_errors(path):
            (data,) = await self._here.read(path, [(start, end)])
        return data

    async def _cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        batch_size: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | Exception]:
        """Return the bytes of each range, or its error. Near ranges of a file are requested together."""
        starts, ends = (each if isinstance(each, Iterable) else [each] * len(paths) for each in (starts, ends))
        by_path: dict[str, list[int]] = {}
        for i, path in enumerate(paths):
            by_path.setdefault(self._strip_protocol(path), []).append(i)
        wanted = list(zip(starts, ends, strict=True))
        if len(wanted) != len(paths):
            raise ValueError("give a start and an end for each path")
        found: dict[int, bytes | Exception] = {}

        async def read(path: str, places: list[int]) -> None:
            try:
                with os_errors(path):
                    data = await self._here.read(path, [wanted[i] for i in places])
            except OSError as error:
                if on_error == "raise":
                    raise
                found.update(dict.fromkeys(places, error))
            else:
                found.update(zip(places, data, strict=True))

        from coalloc.util.concurrency import gather

        await gather(*(read(*each) for each in by_path.items()))
        return [found[i] for i in range(len(paths))]

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        """Download a whole file: verified, and continued after a failure."""
        if await asyncio.to_thread(Path(lpath).is_dir):  # fsspec has made it for the files in it
            return
        path, done = self._strip_protocol(rpath), 0

        def watch(snapshot: "Snapshot") -> None:
            nonlocal done
            callback.set_size(snapshot.size)
            callback.relative_update(snapshot.done_bytes - done)
            done = snapshot.done_bytes

        try:
            with os_errors(path):
                await self._here.download(path, lpath, watch)
        except OSError:
            if not await self._isdir(path):
                raise
            await asyncio.to_thread(Path(lpath).mkdir, parents=True, exist_ok=True)

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> "CogetFile":
        if mode != "rb":
            raise NotImplementedError(READ_ONLY)
        return CogetFile(self, path, mode, **kwargs)

    async def read_block(self, file: "OpenFile", start: int, end: int) -> bytes:
        """Return bytes of an open file.

        :raises OSError: if they cannot be read, or if the file has changed since it was opened
        """
        with os_errors(file.path):
            return await self._here.read_open(file, start, end)

    async def aclose(self) -> None:
        """Close the connections of the running event loop; the next call opens them again."""
        await self._here.close()


class CogetFile(AbstractBufferedFile):  # type: ignore[misc]
    """An open file, with fsspec's caches. A file that changes while it is open cannot be read any more."""

    DEFAULT_BLOCK_SIZE = BLOCK

    def __init__(
        self, *arguments: Any, cache_type: str = "blockcache", cache_options: Any = None, **kwargs: Any
    ) -> None:
        self._in_blocks = cache_type == "blockcache"
        self._ahead: BlocksAhead | None = None
        self._until = 0
        self._expected: Sequence[tuple[int, int]] = ()
        if self._in_blocks:
            cache_options = {"maxblocks": CACHED, **(cache_options or {})}
        super().__init__(*arguments, cache_type=cache_type, cache_options=cache_options, **kwargs)
        from coalloc.plugins.fsspec_readers import OpenFile
        from coalloc.plugins.read_pattern import ReadPattern

        self._known = OpenFile(self.path, self.size)
        self._pattern = ReadPattern(self.size)

    def read(self, length: int | None = -1) -> bytes:
        """Return the next bytes; all that are left if `length` is negative or None."""
        if self._in_blocks:
            start, count = self.loc, self.size - self.loc if length is None or length < 0 else int(length)
            end = min(start + count, self.size)
            if start < end:
                self._until = min(end, start + SOON)
                self._expected = self._pattern.following(start, end)
        return super().read(length)  # type: ignore[no-any-return]

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = sync(self.fs.loop, self._fetch_block, start, min(end, self.size))
        return data

    async def _fetch_block(self, start: int, end: int) -> bytes:
        if not self._in_blocks:  # other caches have their own way to read ahead
            return await self.fs.read_block(self._known, start, end)  # type: ignore[no-any-return]
        if self._ahead is None or self._ahead.loop is not asyncio.get_running_loop():  # as after a fork
            from coalloc.plugins.blocks_ahead import BlocksAhead

            self._ahead = BlocksAhead(partial(self.fs.read_block, self._known), self.size, self.blocksize)
        return await self._ahead.read(start, end, self._until, self._expected)

    def close(self) -> None:
        """Close the file, and cancel what was requested ahead."""
        super().close()
        if ahead := self._ahead:
            self._ahead = None
            with suppress(RuntimeError):  # the event loop is closed
                ahead.loop.call_soon_threadsafe(ahead.cancel)


@contextmanager
def os_errors(path: str) -> Iterator[None]:
    """Convert coget's errors to Python's."""
    from coalloc.errors import CoallocError
    from coalloc.plugins.fsspec_errors import as_os_error

    try:
        yield
    except CoallocError as error:
        raise as_os_error(error, path) from None
