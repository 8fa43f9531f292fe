"""Snakemake's storage plugin for coget: input files from several replicas at once, whole and verified.

Snakemake finds the three public names by themselves. coget is imported when a file is used, as Snakemake imports all
storage plugins at each start.
"""

import asyncio
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Optional

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

from snakemake_storage_plugin_coget import background, queries

if TYPE_CHECKING:
    from coalloc import api
    from coalloc.errors import CoallocError

__all__ = ["StorageObject", "StorageProvider", "StorageProviderSettings"]

DIGESTS = ("sha512", "sha256", "sha1", "md5")
"""Checksums that Snakemake can compute, the best first."""
NEVER_CHANGED = 0.0
"""The modification time of all files: those of replicas differ, and would run finished jobs again."""
AT_ONCE = 32
"""Files that are fetched at once, or asked for: Snakemake itself asks for one after the other."""
UNCOMPARED = "not verified: no checksum is known, and some bytes were not compared with another replica"


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

    def __post_init__(self) -> None:
        self.places = asyncio.Semaphore(AT_ONCE)
        self._order: dict[str, int] = {}
        self._named: list[StorageObject] = []
        self._asked: dict[str, Future[FileState]] = {}

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
        valid = queries.is_valid(query)
        reason = "write coget://SCOPE:NAME, or coget:// and the URLs of replicas, separated by |"
        return StorageQueryValidationResult(query, valid, None if valid else reason)

    def postprocess_query(self, query: str) -> str:
        """Return the query with its replicas in order, so that the same file has the same name."""
        return queries.canonical(query)

    def safe_print(self, query: str) -> str:
        """Return the query without passwords and keys."""
        from coalloc.safe_text import redact

        return queries.joined([redact(each) if "://" in each else each for each in queries.sources(query)])

    def add(self, file: "StorageObject") -> None:
        """Remember a file of the workflow, to ask for it together with others."""
        if file.query not in self._order and not queries.has_wildcards(file.query):
            self._order[file.query] = len(self._named)
            self._named.append(file)

    def state(self, file: "StorageObject") -> "Future[FileState]":
        """Ask servers about a file, and about the next ones of the workflow; each file is asked for once.

        A failure is not kept: the next call asks again.
        """
        begin = self._order.get(file.query, len(self._named))
        for each in (file, *self._named[begin : begin + AT_ONCE]):
            known = self._asked.get(each.query)
            if known is None or (each is file and known.done() and (known.cancelled() or known.exception())):
                self._asked[each.query] = background.start(each.asked())
        return self._asked[file.query]


class StorageObject(StorageObjectRead):
    """One input file."""

    def __post_init__(self) -> None:
        self.provider.add(self)

    async def inventory(self, cache: IOCacheStorageInterface) -> None:
        """Store what the servers state about this file: whether it exists, its size and its checksum."""
        key = self.cache_key()
        if key in cache.exists_in_storage:
            return
        state = await asyncio.wrap_future(self.provider.state(self))
        cache.exists_in_storage[key] = state.size is not None
        if state.size is not None:
            cache.mtime[key] = Mtime(storage=NEVER_CHANGED)
            cache.size[key] = state.size
            cache.checksum[key] = state.checksum

    def get_inventory_parent(self) -> str | None:
        return None

    def local_suffix(self) -> str:
        """Return the path of the local file below the directory of all files."""
        return queries.file_name(self.query)

    def cleanup(self) -> None:
        """Keep partial data: the next run continues with them."""

    def exists(self) -> bool:
        return self.provider.state(self).result().size is not None

    def mtime(self) -> float:
        return NEVER_CHANGED

    def size(self) -> int:
        size = self.provider.state(self).result().size
        if size is None:
            raise WorkflowError(f"{self.print_query}: no server has this file")
        return size

    def checksum(self) -> str | None:
        return self.provider.state(self).result().checksum

    def retrieve_object(self) -> None:
        """Fetch the file, verified; partial data stay beside it, and a later call continues with them."""
        background.run(self._fetched())

    async def managed_retrieve(self) -> None:
        """Fetch the file beside others; an interrupt ends the download at once.

        Snakemake's own method calls `retrieve_object`: it would wait for the end of one download after the other.
        """
        await self.wait_for_free_space()
        try:
            self.local_path().parent.mkdir(parents=True, exist_ok=True)
            await background.awaited(self._fetched())
        except Exception as error:
            raise WorkflowError(f"cannot fetch {self.print_query}", error) from error

    def _request(self) -> "api.Request":
        from coalloc import api

        broker = self.provider.settings.broker if self.provider.settings else None
        return api.Request(queries.sources(self.query), output=self.local_path(), overwrite=True, broker=broker)

    async def asked(self) -> FileState:
        """Ask the servers about the file.

        :raises WorkflowError: no server answers, or the replicas differ
        """
        from coalloc import api
        from coalloc.errors import CoallocError, NoSuchFile, NothingToFetchFrom

        try:
            reader = await api.open_reader(self._request())
        except NoSuchFile:
            return FileState(None)
        except CoallocError as error:
            dataset = "://" not in queries.sources(self.query)[0]
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
            async with self.provider.places:
                reports = await api.download(self._request())
        except CoallocError as error:
            raise failure(error) from None
        if not all(each.compared for each in reports):
            self.provider.logger.warning(f"{self.print_query}: {UNCOMPARED}")


def failure(error: "CoallocError") -> WorkflowError:
    """Return Snakemake's error for one of coget's, with the remedy."""
    return WorkflowError(f"{error}: {error.remedy}" if error.remedy else str(error))
