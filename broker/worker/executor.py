"""Execution of work items with the collections of a task, and the function for each kind of work."""

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from broker.errors import BrokerError, NotFound
from broker.models import forecasts
from broker.models.callers import Caller
from broker.models.collections import Collection
from broker.models.lanes import LaneCandidate
from broker.models.tasks import Event, Work
from broker.models.work import WorkResult
from broker.services.catalogue.bad_replica_reports import BadReplicaReports
from broker.services.catalogue.datasets import Catalogue
from broker.services.catalogue.replicas import ReadableReplicas, Replicas
from broker.services.collections.trees import CatalogueTree, GridFTPTree, LocalTree, Tree, Trees
from broker.services.network.places import Places
from broker.services.planning.unpromised_rates import UnpromisedRates
from broker.storage.collections import CollectionStore
from broker.storage.database import Database
from broker.storage.tasks import TaskStore
from broker.worker.actions.comparing import recorded
from broker.worker.actions.copying import Copying, delete_partial_files
from broker.worker.actions.copying_datasets import DatasetCopying
from broker.worker.actions.dataset_findings import DatasetFindings
from broker.worker.actions.deleting import Clearing
from broker.worker.actions.discovery import Looking
from broker.worker.actions.downloading import Downloading, LocatedReplicas, Sources, discarded
from broker.worker.actions.linking import Linking
from broker.worker.actions.pruning import Pruning
from broker.worker.concurrency import side_by_side
from broker.worker.copy_routes import CopyRoutes
from broker.worker.copy_sessions import Routes
from broker.worker.owner_rights import DENIED, OwnerRights
from broker.worker.policy.faults import at_source, failed
from broker.worker.rate_limits import LinkTurns, RateLimits, RateReservations
from broker.worker.recorder import Recorder
from coalloc.api import DataRoutes
from coalloc.errors import CoallocError, PermissionRefused, Unsupported
from coalloc.model.forecasts import Estimate

__all__ = ["Executor"]

LOOKS_AT_ONCE = 8
Doer = Callable[[Sequence[Work], Recorder], Awaitable[None]]
"""A function that runs a batch of work items of one kind, and reports each result."""


class TaskEnd(NamedTuple):
    """A collection and its tree of files."""

    collection: Collection
    tree: Tree


class Executor:
    """The executor of one process.

    :param lenient: whether to copy files that cannot be verified
    :param via: routes over depots for data between servers; None to connect the servers directly
    """

    def __init__(
        self,
        database: Database,
        trees: Trees,
        places: Places,
        replicas: Replicas,
        catalogue: Catalogue,
        reports: BadReplicaReports,
        unpromised: UnpromisedRates,
        lenient: bool = False,
        via: DataRoutes | None = None,
    ) -> None:
        self._lenient = lenient
        self._database = database
        self._trees = trees
        self._places = places
        self._replicas = replicas
        self._catalogue = catalogue
        self._reports = reports
        self._unpromised = unpromised
        self._routes = Routes(CopyRoutes(via))
        self._reservations = RateReservations(database)

    async def perform(self, task: LaneCandidate, batch: Sequence[Work], recorder: Recorder) -> None:
        """Run a batch of a task's work items, and report each result."""
        try:
            rights = await self._rights(task)
            source, sink = await self._ends(task, rights)
            granted = _granted(rights, batch, recorder)
            by_kind = {
                kind: [work for work in granted if work.kind == kind] for kind in dict.fromkeys(w.kind for w in granted)
            }
            for kind, some in by_kind.items():
                doer = await self._doer(kind, task, rights, source, sink, recorder)
                await doer(some, recorder)
        except (BrokerError, CoallocError) as error:
            for work in batch:
                recorder.report(failed(work, error, task.options))

    async def _rights(self, task: LaneCandidate) -> OwnerRights:
        async with self._database.read() as connection:
            return await OwnerRights.of(connection, task)

    async def _ends(
        self, task: LaneCandidate, rights: OwnerRights, limited: bool = True
    ) -> tuple[TaskEnd, TaskEnd | None]:
        """Return the source and the destination of a task; a deletion has no destination.

        :param limited: whether the trees are limited to the rights of the task's owner
        :raises NotFound: when a collection no longer exists
        :raises CoallocError: when this process cannot access a collection
        """
        for number in filter(None, task.pair):
            if number not in rights.collections:
                raise NotFound(f"the collection {number} does not exist any more", "submit a new task")
        reaches = [rights.reach(number) for number in filter(None, task.pair)]
        ends = [
            TaskEnd(each.collection, await self._trees.of(each.collection, each if limited else None))
            for each in reaches
        ]
        return ends[0], ends[1] if len(ends) > 1 else None

    async def _doer(
        self,
        kind: str,
        task: LaneCandidate,
        rights: OwnerRights,
        source: TaskEnd,
        sink: TaskEnd | None,
        recorder: Recorder,
    ) -> Doer:
        """Return the function that runs work items of a kind."""
        if kind in ("delete", "remove"):
            if sink is not None and await self._incomplete(task):
                return _left_alone
            recursive = task.options.recursive or sink is not None
            extra = sink is not None
            clearing = Clearing(self._database, (sink or source).tree, task.options, recursive, recorder.fence, extra)
            return _each(clearing.delete if kind == "delete" else clearing.remove, task)
        assert sink is not None
        if kind in ("look", "expand"):
            found = partial(recorder.found, task.task)
            looking = Looking(self._database, source.tree, sink.tree, task.options, found)
            return _each(looking.look if kind == "look" else looking.expand, task)
        if kind == "prune":
            return _each(Pruning(self._database, source.tree, sink.tree, task.options).prune, task)
        if task.options.dry_run:
            return _only_planned
        if kind == "link":
            return _each(Linking(source.tree, sink.tree, rights, task.options, recorder.fence).link, task)
        return await self._copier(task, source, sink)

    async def _incomplete(self, task: LaneCandidate) -> bool:
        """Return whether items failed or were skipped, so that extra data at the destination may be the last copy."""
        async with self._database.read() as connection:
            known = await TaskStore(connection).one(task.task)
        return known is None or bool(known.skipped or known.failed)

    async def _copier(self, task: LaneCandidate, source: TaskEnd, sink: TaskEnd) -> Doer:
        """Return the function that copies between these collections."""
        if task.options.encrypt_data:  # for tasks from before this option was refused
            raise Unsupported(
                "this broker does not encrypt data between servers", "submit the task without encrypt_data"
            )
        owner_and_site = (task.owner, await self._site(sink.collection))
        limits = await self._limits(task, owner_and_site[1])
        findings = DatasetFindings(self._catalogue, self._reports, task.owner, task.role)
        if isinstance(source.tree, CatalogueTree) and isinstance(sink.tree, GridFTPTree):
            where = self._where(source.tree, sink.collection, task)
            depots = self._routes.depots
            return DatasetCopying(
                where, depots, sink.tree, task.options, limits, owner_and_site, findings, self._lenient
            ).copy
        if isinstance(source.tree, GridFTPTree) and isinstance(sink.tree, GridFTPTree):
            return Copying(
                self._routes, source.tree, sink.tree, task.options, limits, owner_and_site, self._lenient
            ).copy
        if isinstance(sink.tree, LocalTree) and isinstance(source.tree, GridFTPTree | CatalogueTree):
            sources = self._sources(source.tree, sink.collection, task)
            namings = [each.naming for each in (source.tree, sink.tree) if not isinstance(each, CatalogueTree)]
            return Downloading(
                sources, sink.tree, task.options, limits, owner_and_site, namings, findings, self._lenient
            ).copy
        raise Unsupported(
            f"copies from {source.collection.name} to {sink.collection.name} are not supported",
            "copy from a GridFTP server or the catalogue, to a GridFTP server or a directory of workers",
        )

    def _sources(self, tree: GridFTPTree | CatalogueTree, sink: Collection, task: LaneCandidate) -> Sources:
        """Return the function that finds the replicas of the file at a path."""

        async def of(path: str) -> LocatedReplicas:
            if isinstance(tree, GridFTPTree):
                with at_source():
                    await tree.readable(path)
                return LocatedReplicas({tree.url(path): Estimate()}, tree.server.allowed, tree.server.proxy)
            found, addresses, _ = await self._where(tree, sink, task)(path)
            expected = {replica.url: replica.estimate for replica in found.replicas}
            leads = partial(self._replicas.leads, _caller(task))
            allowed = await self._places.allowed()
            allowed["policy"] = allowed["policy"].pin(addresses)
            return LocatedReplicas(expected, allowed, None, recorded(found.checksums), leads, found)

        return of

    def _where(
        self, tree: CatalogueTree, sink: Collection, task: LaneCandidate
    ) -> Callable[[str], Awaitable[ReadableReplicas]]:
        """Return the function that finds a dataset's replicas that the task's owner may read now, with forecasts."""

        async def of(path: str) -> ReadableReplicas:
            found = await self._replicas.to_read(await tree.did(path), await self._site(sink), _caller(task))
            return await self._without_links_out(found)

        return of

    async def _without_links_out(self, found: ReadableReplicas) -> ReadableReplicas:
        """Leave out replicas whose path has links to files that the task's owner may not read.

        :raises CoallocError: when no replica remains
        """
        numbers = {str(reach.collection.id) for granted in found.by_grant.values() for reach, _ in granted}
        if not numbers:
            return found
        async with self._database.read() as connection:
            whole = {each.id: each for each in await CollectionStore(connection).all(numbers)}
        reachable: list[forecasts.RankedReplica] = []
        refused: CoallocError | None = None
        for replica in found.dataset.replicas:
            try:
                for reach, path in found.by_grant.get(replica.endpoint, ()):
                    if collection := whole.get(reach.collection.id):
                        with suppress(Unsupported):  # only GridFTP servers report links
                            await (await self._trees.gridftp(collection, reach)).readable(path)
            except CoallocError as error:
                if refused is None or isinstance(refused, PermissionRefused):  # prefer an error that may be temporary
                    refused = error
            else:
                reachable.append(replica)
        if refused and not reachable:
            raise refused
        return found._replace(dataset=replace(found.dataset, replicas=reachable))

    async def _site(self, collection: Collection) -> str:
        return (await self._places.endpoint(collection.endpoint)).site if collection.endpoint else collection.site

    async def _limits(self, task: LaneCandidate, site: str) -> RateLimits:
        """Return the rate limits of a task, whose destination is at a site."""
        look = partial(self._unpromised.of, task, site, _caller(task))
        turns = {source: LinkTurns(source, rate, look) for source, rate in (await look()).items()}
        async with self._database.read() as connection:
            return RateLimits(self._reservations, await CollectionStore(connection).limited(), task.pair, turns)

    async def delete_partial_files(self, task: LaneCandidate, batch: Sequence[Work]) -> None:
        """Delete the partial data of copies that will not be completed."""
        if task.options.dry_run:
            return
        _, sink = await self._ends(task, await self._rights(task), limited=False)  # temporary names belong to no user
        if sink and isinstance(sink.tree, GridFTPTree):
            await delete_partial_files(sink.tree, batch)
        elif sink and isinstance(sink.tree, LocalTree):
            await discarded(sink.tree, batch)

    async def close(self) -> None:
        """Close all idle sessions."""
        self._routes.close()


def _caller(task: LaneCandidate) -> Caller:
    """Return the owner of a task as a caller."""
    return Caller.model_construct(subject=task.owner, role=task.role, site="")


def _granted(rights: OwnerRights, batch: Sequence[Work], recorder: Recorder) -> list[Work]:
    """Return the work items for which the owner still has permission; report all others as failed."""
    granted = []
    for work in batch:
        if reason := rights.denied(work):
            recorder.report(WorkResult(work, "failed", error_code=DENIED, error=reason))
        elif twin := work.details.twin:
            reason = f"the destination does not distinguish {work.destination} from {twin!r} in the same directory"
            recorder.report(WorkResult(work, "failed", error_code="EXISTS", error=reason))
        else:
            granted.append(work)
    return granted


def _each(do: Callable[[Work], Awaitable[WorkResult]], task: LaneCandidate) -> Doer:
    """Return a function that runs work items concurrently."""
    return lambda batch, recorder: side_by_side(do, batch, recorder, task.options, LOOKS_AT_ONCE)


async def _left_alone(batch: Sequence[Work], recorder: Recorder) -> None:
    """Report deletions as succeeded without deleting anything, and add an event with the reason."""
    why = "some files failed, so nothing is deleted at the destination"
    event = Event(time.time(), "DELETE_DESTINATION_EXTRA_SKIPPED", False, "nothing is deleted", why)
    recorder.note(batch[0].task_id, event)
    for work in batch:
        recorder.report(WorkResult(work, "succeeded"))


async def _only_planned(batch: Sequence[Work], recorder: Recorder) -> None:
    """Report success without an action: the result of a dry run is the rows in the database."""
    for work in batch:
        recorder.report(WorkResult(work, "succeeded"))
