"""Snakemake's storage plugin for coget: input files from several replicas at once, whole and verified.

Snakemake finds the three public names by themselves. coget is imported when a file is used, as Snakemake imports all
storage plugins at each start.
"""

import asyncio
import hashlib
import os
import re
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, TypeVar

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_storage_plugins.common import Operation
from snakemake_interface_storage_plugins.io import IOCacheStorageInterface, Mtime
from snakemake_interface_storage_plugins.settings import StorageProviderSettingsBase
from snakemake_interface_storage_plugins.storage_object import StorageObjectRead
from snakemake_interface_storage_plugins.storage_provider import (
    ExampleQuery,
    QueryType,
    StorageProviderBase,
    StorageQueryValidationResult,
)

if TYPE_CHECKING:
    from coalloc import api
    from coalloc.errors import CoallocError

__all__ = ["StorageObject", "StorageProvider", "StorageProviderSettings"]

T = TypeVar("T")

SCHEME = "coget://"
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/].*")
DATASET = re.compile(r"[\w.{},-]+:[^/|\s][^|\s]*")
WILDCARD = re.compile(r"\{[^{}]*\}")
DIGESTS = ("sha512", "sha256", "sha1", "md5")
"""Checksums that Snakemake can compute, the best first."""
NEVER_CHANGED = 0.0
"""The modification time of all files: those of replicas differ, and would run finished jobs again."""


class FileState(NamedTuple):
    """The size of a file in bytes, and its checksum as ALGORITHM:HEX; the size is None if the file does not exist."""

    size: int | None
    checksum: str | None = None


@dataclass
class StorageProviderSettings(StorageProviderSettingsBase):
    """Settings of the plugin."""

    broker: Optional[str] = field(  # noqa: UP045 - Snakemake reads the type
        default=None, metadata={"help": "Address of the broker that knows datasets.", "env_var": False}
    )


class StorageProvider(StorageProviderBase):
    """Files by dataset, URL, or URLs of several replicas."""

    @classmethod
    def example_queries(cls) -> list[ExampleQuery]:
        return [
            ExampleQuery("coget://run1:x.nc", "A dataset of the broker", QueryType.INPUT),
            ExampleQuery("coget://https://a.example/x.nc|gsiftp://b.example/x.nc", "Two replicas", QueryType.INPUT),
            ExampleQuery("coget://https://a.example/x.meta4", "The Metalink of a file", QueryType.INPUT),
        ]

    def rate_limiter_key(self, query: str, operation: Operation) -> Any:
        return None

    def default_max_requests_per_second(self) -> float:
        return 100.0

    def use_rate_limiter(self) -> bool:
        return False  # coget limits the connections to each server itself

    @classmethod
    def is_valid_query(cls, query: str) -> StorageQueryValidationResult:
        named = sources(query)
        dataset = query.startswith(SCHEME) and len(named) == 1 and bool(DATASET.fullmatch(named[0]))
        valid = dataset or all(URL.fullmatch(each) for each in named)
        reason = "write coget://SCOPE:NAME, or coget:// and the URLs of replicas, separated by |"
        return StorageQueryValidationResult(query, valid, None if valid else reason)

    def postprocess_query(self, query: str) -> str:
        """Return the query with its replicas in order, so that the same file has the same name."""
        return SCHEME + "|".join(sorted(set(sources(query))))

    def safe_print(self, query: str) -> str:
        """Return the query without passwords and keys."""
        from coalloc.safe_text import redact

        return SCHEME + "|".join(redact(each) if "://" in each else each for each in sources(query))


class StorageObject(StorageObjectRead):
    """One input file."""

    def __post_init__(self) -> None:
        self._known: FileState | None = None

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Ask the servers once for all that Snakemake wants to know of this file."""
        key = self.cache_key()
        if key in cache.exists_in_storage:
            return
        state = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._asked(), loop()))
        self._known = state
        cache.exists_in_storage[key] = state.size is not None
        if state.size is not None:
            cache.mtime[key] = Mtime(storage=NEVER_CHANGED)
            cache.size[key] = state.size
            cache.checksum[key] = state.checksum

    def get_inventory_parent(self) -> str | None:
        return None

    def local_suffix(self) -> str:
        """Return a name with the file's own name at its end, without keys; it keeps the wildcards of a query."""
        wildcards = "".join(WILDCARD.findall(self.query))
        address = sources(self.query)[0].partition("?")[0].partition("#")[0].rstrip("/")
        name = re.sub(r"[^\w.{},=+-]", "_", re.split("[/:]", address)[-1])[-200:]
        name = f"_{name}" if name in ("", ".", "..") else name
        return f"{hashlib.sha256(self.query.encode()).hexdigest()[:16]}{wildcards}/{name}"

    def cleanup(self) -> None:
        """Keep partial data: the next run continues with them."""

    def exists(self) -> bool:
        return self._state().size is not None

    def mtime(self) -> float:
        return NEVER_CHANGED

    def size(self) -> int:
        size = self._state().size
        if size is None:
            raise WorkflowError(f"{self.print_query}: no server has this file")
        return size

    def checksum(self) -> str | None:
        return self._state().checksum

    def retrieve_object(self) -> None:
        """Fetch the file, verified; partial data stay beside it, and a later call continues with them."""
        run(self._fetched())

    def _state(self) -> FileState:
        if self._known is None:
            self._known = run(self._asked())
        return self._known

    def _request(self) -> "api.Request":
        from coalloc import api

        broker = self.provider.settings.broker if self.provider.settings else None
        return api.Request(sources(self.query), output=self.local_path(), overwrite=True, broker=broker)

    async def _asked(self) -> FileState:
        from coalloc import api
        from coalloc.errors import CoallocError, NoSuchFile, NothingToFetchFrom

        try:
            reader = await api.open_reader(self._request())
        except NoSuchFile:
            return FileState(None)
        except CoallocError as error:
            dataset = "://" not in sources(self.query)[0]
            if dataset and isinstance(error, NothingToFetchFrom) and not error.transient:
                return FileState(None)
            raise failure(error) from None
        try:
            known = {each.algorithm: each.value for each in reader.checksums}
            best = next((each for each in DIGESTS if each in known), None)
            return FileState(reader.size, f"{best}:{known[best]}" if best else None)
        finally:
            await reader.close()

    async def _fetched(self) -> None:
        from coalloc import api
        from coalloc.errors import CoallocError

        try:
            await api.download(self._request())
        except CoallocError as error:
            raise failure(error) from None


def sources(query: str) -> list[str]:
    """Return the dataset, or the URLs, that a query names."""
    return query.removeprefix(SCHEME).split("|")


def failure(error: "CoallocError") -> WorkflowError:
    """Return Snakemake's error for one of coget's, with the remedy."""
    return WorkflowError(f"{error}: {error.remedy}" if error.remedy else str(error))


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also from a coroutine of Snakemake; an interrupt cancels it."""
    future = asyncio.run_coroutine_threadsafe(coroutine, loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


LOOPS: dict[int, asyncio.AbstractEventLoop] = {}
"""The event loop of this process, by its id: a forked child needs another one."""
LOCK = threading.Lock()


def loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of this process for coget; it runs in a thread of its own."""
    with LOCK:
        if os.getpid() not in LOOPS:
            made = asyncio.new_event_loop()
            threading.Thread(target=made.run_forever, name="coget", daemon=True).start()
            LOOPS[os.getpid()] = made
        return LOOPS[os.getpid()]
