"""The rules of the catalogue.

A dataset is the permanent name of a file: its size and its checksums are stored once, and never change. A file with
other bytes needs another dataset. Replicas can be added, changed and removed.
"""

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection

from broker.errors import BrokerError, Conflict, NotFound
from broker.models.callers import Caller, Role
from broker.models.catalogue import CatalogueReplica, Dataset
from broker.services.catalogue.enclosing import visible_replicas
from broker.services.catalogue.formats import CatalogueEntry
from broker.services.network.places import Places
from broker.storage.bad_replica_reports import BadReplicaReportStore
from broker.storage.catalogue import CatalogueStore as Stored
from broker.storage.catalogue import Registrar, StoredDataset
from broker.storage.collections import CollectionStore
from broker.storage.database import Database, retried
from broker.storage.tokens import TokenStore

__all__ = ["Catalogue", "StoredEntries"]


class StoredEntries(NamedTuple):
    """The result of storing entries: the number of changed replicas, and the errors of refused entries by index."""

    changed: int
    refused: Mapping[int, BrokerError]


class Catalogue:
    """Datasets and their replicas."""

    def __init__(self, database: Database, places: Places) -> None:
        self._database = database
        self._places = places

    @retried
    async def keep(
        self, by: str, entries: Sequence[CatalogueEntry], note: str, role: Role = "curator"
    ) -> StoredEntries:
        """Store all valid entries in one transaction; to store them again has no effect.

        :param by: subject that submits the entries
        :param note: action for the audit log
        """
        now = time.time()
        async with self._database.write() as connection:
            stored = Stored(connection)
            endpoints = await stored.endpoints(replica.endpoint for entry in entries for replica in _all(entry))
            refused: dict[int, BrokerError] = {
                i: error for i, entry in enumerate(entries) if (error := _unplaced(entry, endpoints))
            }
            names = {entry.dataset.name for i, entry in enumerate(entries) if i not in refused}
            await stored.add(names, now)  # first, to lock the datasets until the end of the transaction
            known = await stored.known(names, lock=True)
            new_datasets: dict[str, Dataset] = {}
            for i, entry in enumerate(entries):
                if i not in refused:
                    try:
                        name = entry.dataset.name
                        new_datasets[name] = _agreed(entry.dataset, known[name], new_datasets.get(name))
                    except BrokerError as error:
                        refused[i] = error
            await _store(stored, new_datasets, known)
            accepted = [entry for i, entry in enumerate(entries) if i not in refused]
            stated = [each for entry in accepted for each in entry.replicas]
            registrar = await _registrar(connection, by, role)
            changed = await stored.put_replicas(stated, now, registrar)
            if stated:
                reports = BadReplicaReportStore(connection)
                await reports.answer(stated)
                await reports.judge(by, [each for each in stated if each.state != "AVAILABLE"], now)
            mentioned = [each for entry in accepted for each in entry.mentioned]
            changed += await stored.put_replicas(mentioned, now, registrar, True)
            if new_datasets:
                await TokenStore(connection).note(now, by, note, _counted(new_datasets))
        return StoredEntries(changed, refused)

    async def put(self, by: str, dataset: Dataset) -> Dataset:
        """Create a dataset, or add its missing values. :raises Conflict: when another size or checksum is stored"""
        result = await self.keep(by, [CatalogueEntry(dataset)], "put dataset")
        for error in result.refused.values():
            raise error
        return (await self.dataset(dataset.name))[0]

    @retried
    async def learn_size(self, by: str, name: str, size: int) -> None:
        """Store the size of a dataset that a copy has confirmed by its checksum; do nothing if a size is stored."""
        async with self._database.write() as connection:
            stored = Stored(connection)
            known = (await stored.known([name], lock=True)).get(name)
            if known is not None and known.size is None:
                await stored.set_sizes({known.id: size})
                await TokenStore(connection).note(time.time(), by, "learn size", f"{name}: {size} bytes")

    @retried
    async def put_replica(self, by: str, replica: CatalogueReplica, role: Role = "curator") -> CatalogueReplica:
        """Create or change a replica. :raises NotFound: when its dataset or its endpoint does not exist"""
        now = time.time()
        async with self._database.write() as connection:
            stored = Stored(connection)
            if replica.endpoint not in await stored.endpoints([replica.endpoint]):
                raise NotFound(
                    f"there is no endpoint {replica.endpoint}", "choose one listed by GET /broker/v1/endpoints"
                )
            if not await stored.known([replica.dataset]):
                raise _no_dataset(replica.dataset)
            judged = replica.state != "AVAILABLE" or await BadReplicaReportStore(connection).numbers(replica)
            await stored.put_replicas([replica], now, await _registrar(connection, by, role))
            if judged:  # a new available replica is no curator's judgement
                await BadReplicaReportStore(connection).judge(by, [replica], now)
            await TokenStore(connection).note(now, by, f"put replica {replica.state}", _named(replica))
        return replica

    async def dataset(self, name: str, caller: Caller | None = None) -> tuple[Dataset, list[CatalogueReplica]]:
        """Return a dataset, and its replicas that the caller may see. :raises NotFound:"""
        places = await self._places.map()
        async with self._database.read() as connection:
            stored = Stored(connection)
            known = (await stored.known([name])).get(name)
            if known is None:
                raise _no_dataset(name)
            replicas = await visible_replicas(connection, places, await stored.replicas(name), caller)
        return Dataset(name=name, size=known.size, checksums=dict(known.checksums)), replicas

    async def created_at(self, name: str) -> float:
        """Return the time at which a dataset was created in the catalogue. :raises NotFound:"""
        async with self._database.read() as connection:
            known = (await Stored(connection).known([name])).get(name)
        if known is None:
            raise _no_dataset(name)
        return known.created_at

    async def listed(self, beginning: str, after: str, limit: int) -> list[Dataset]:
        """Return datasets, by scope and name.

        :param beginning: prefix of their names
        :param after: name of the last dataset of the previous page
        :param limit: most datasets to return
        """
        async with self._database.read() as connection:
            return await Stored(connection).listed(beginning, after, limit)

    async def pages(
        self, beginning: str, after: str, limit: int, caller: Caller | None = None
    ) -> list[tuple[Dataset, list[CatalogueReplica]]]:
        """Return datasets as `listed` does, each with its replicas that the caller may see."""
        places = await self._places.map()
        async with self._database.read() as connection:
            stored = Stored(connection)
            page = await stored.listed(beginning, after, limit)
            every = await stored.all_replicas([dataset.name for dataset in page]) if page else {}
            there = await visible_replicas(
                connection, places, [each for some in every.values() for each in some], caller
            )
        found: dict[str, list[CatalogueReplica]] = {}
        for each in there:
            found.setdefault(each.dataset, []).append(each)
        return [(dataset, found.get(dataset.name, [])) for dataset in page]

    async def wanting(
        self, states: Sequence[str], after: str, endpoint: str, limit: int, caller: Caller | None = None
    ) -> tuple[list[CatalogueReplica], CatalogueReplica | None]:
        """Return the replicas in some states other than AVAILABLE that the caller may see, by dataset and endpoint.

        Also return the last replica that was examined if there may be more, otherwise None.

        :param after: dataset of the last examined replica of the previous page, at `endpoint`
        :param limit: most replicas to examine
        """
        places = await self._places.map()
        async with self._database.read() as connection:
            page = await Stored(connection).wanting(states, after, endpoint, limit)
            there = await visible_replicas(connection, places, page, caller)
        return there, page[-1] if len(page) == limit else None

    @retried
    async def remove(self, by: str, name: str) -> None:
        """Remove a dataset and its replicas from the catalogue; no file is touched. :raises NotFound:"""
        async with self._database.write() as connection:
            if not await Stored(connection).remove(name):
                raise _no_dataset(name)
            await TokenStore(connection).note(time.time(), by, "remove dataset", name)

    @retried
    async def remove_replica(self, by: str, name: str, endpoint: str) -> None:
        """Remove a replica from the catalogue; no file is touched. :raises NotFound:"""
        async with self._database.write() as connection:
            if not await Stored(connection).remove_replica(name, endpoint):
                raise NotFound(
                    f"there is no replica of {name} at {endpoint}",
                    f"choose one listed by GET /broker/v1/datasets/{name}",
                )
            await TokenStore(connection).note(time.time(), by, "remove replica", f"{name} at {endpoint}")


async def _registrar(connection: AsyncConnection, by: str, role: Role) -> Registrar:
    return Registrar(by, role == "admin", await CollectionStore(connection).owns(by))


def _agreed(dataset: Dataset, known: StoredDataset, stated: Dataset | None) -> Dataset:
    """Return a dataset merged with its stored values, and with the values of earlier entries of the request.

    :param stated: the merged dataset after the earlier entries
    :raises Conflict: when size or checksums differ
    """
    earlier = [size for size in (known.size, stated and stated.size) if size is not None]
    sizes = {*earlier, *([] if dataset.size is None else [dataset.size])}
    if len(sizes) > 1:
        raise Conflict(
            f"{dataset.name} is known with {earlier[0]} bytes, not {dataset.size}",
            "give other bytes another name, or remove the dataset first",
        )
    before = {**known.checksums, **(stated.checksums if stated else {})}
    for algorithm, value in dataset.checksums.items():
        if before.get(algorithm, value) != value:
            raise Conflict(
                f"{dataset.name} is known with {algorithm} {before[algorithm]}, not {value}",
                "give other bytes another name, or remove the dataset first",
            )
    size = next(iter(sizes), None)
    return Dataset.model_construct(name=dataset.name, size=size, checksums={**before, **dataset.checksums})


def _unplaced(entry: CatalogueEntry, endpoints: Collection[str]) -> NotFound | None:
    """Return an error if an entry has a replica at an unknown endpoint, otherwise None."""
    for replica in _all(entry):
        if replica.endpoint not in endpoints:
            return NotFound(f"there is no endpoint {replica.endpoint}", "make it first")
    return None


def _all(entry: CatalogueEntry) -> tuple[CatalogueReplica, ...]:
    return entry.replicas + entry.mentioned


async def _store(stored: Stored, datasets: Mapping[str, Dataset], known: Mapping[str, StoredDataset]) -> None:
    sizes = {
        known[name].id: dataset.size
        for name, dataset in datasets.items()
        if known[name].size is None and dataset.size is not None
    }
    await stored.set_sizes(sizes)
    digests = [
        (name, algorithm, value)
        for name, dataset in datasets.items()
        for algorithm, value in dataset.checksums.items()
        if algorithm not in known[name].checksums
    ]
    if digests:
        await stored.add_checksums(digests)


def _counted(dids: Iterable[str]) -> str:
    names = list(dids)
    return names[0] if len(names) == 1 else f"{len(names)} datasets, {names[0]} to {names[-1]}"


def _named(replica: CatalogueReplica) -> str:
    return f"{replica.dataset} at {replica.endpoint}"


def _no_dataset(name: str) -> NotFound:
    return NotFound(f"there is no dataset {name}", "choose one listed by GET /broker/v1/datasets")
