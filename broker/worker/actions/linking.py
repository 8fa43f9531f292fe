"""Creation of the symbolic links that a task keeps."""

from contextlib import suppress

from broker.models.tasks import Options, Work, WorkState
from broker.models.work import WorkResult
from broker.services.collection_paths import led
from broker.services.collections.trees import Tree
from broker.worker.actions.folders import Making
from broker.worker.fence import Fence
from broker.worker.owner_rights import DENIED, OwnerRights
from broker.worker.policy.faults import at_source
from broker.worker.policy.selection import outdated
from broker.worker.temporary_names import names, temporary
from coalloc.errors import IsDirectory, NoSuchFile, PermissionRefused, Unsupported
from coalloc.model.listings import Entry

__all__ = ["Linking"]


class Linking:
    """Creation of links at the destination like those at the source.

    :param rights: current rights of the task's owner
    """

    def __init__(self, source: Tree, sink: Tree, rights: OwnerRights, options: Options, fence: Fence) -> None:
        self._fence = fence
        self._making = Making(sink, options.dry_run)
        self._source = source
        self._sink = sink
        self._rights = rights
        self._options = options

    async def link(self, work: Work) -> WorkResult:
        """Create a link with the target of the source's link; atomically replace a file or link at the destination.

        A link to a path that is not allowed, or does not exist at the destination, counts as an error of the source.

        :raises IsDirectory: when the destination is a directory
        """
        with at_source():
            target = _target(work, found := await self._found(work))
            if reason := self._rights.no_link(work, target):
                state: WorkState = "skipped" if self._options.skip_source_errors else "failed"
                return WorkResult(work, state, error_code=DENIED, error=reason)
        if await self._is_needed(work, target, found, await self._there(work)):
            await self._make(work, target)
        return WorkResult(work, "succeeded")

    async def _found(self, work: Work) -> Entry:
        """Return the entry at the source.

        The server is asked only if the listing lacks details, because it reports no broken links.
        """
        if work.details.link and not self._options.sync_level:
            return Entry(work.source, "link", link_target=work.details.link)
        found = await self._source.stat(work.source)
        return found._replace(link_target=work.details.link or found.link_target)

    async def _there(self, work: Work) -> Entry | None:
        """Return the entry at the destination; None if the server reports none, as for broken links.

        :raises IsDirectory: when it is a directory
        """
        try:
            there = await self._sink.stat(work.destination)
        except NoSuchFile:
            return None
        if there.kind == "dir" and there.link_target is None:
            raise IsDirectory(f"{work.destination} is a directory", "choose another destination, or delete it first")
        return there

    async def _is_needed(self, work: Work, target: str, found: Entry, there: Entry | None) -> bool:
        """Return whether the link must be created: by the rules for files, but never in place of an equal link."""
        if there is None or there.link_target is None:
            return outdated(found, there, self._options) is not False
        if self._options.sync_level == 0:
            return False
        ends, aim = led(work.destination, there.link_target), led(work.destination, target)
        return aim is None or (ends != aim and ends != await self._sink.end(aim))

    async def _make(self, work: Work, target: str) -> None:
        for name in names(work.destination, work):  # from a worker that died
            with suppress(NoSuchFile):
                await self._sink.delete(name)
        beside = temporary(work.destination, work)
        if work.details.link is None:  # a submitted item, whose parent directory may be missing
            await self._making.make(work.destination.rpartition("/")[0])
        try:
            with at_source():
                await self._sink.link(target, beside)
        except NoSuchFile:
            with at_source():
                why = f"{work.destination} would lead to {led(work.destination, target)}, which does not exist"
                raise NoSuchFile(why, "copy the target, too") from None
        await self._fence.check(work)
        await self._sink.replace(beside, work.destination)


def _target(work: Work, found: Entry) -> str:
    """Return the target of a link at the source, relative to the link's directory.

    :raises Unsupported: when the entry is no link
    :raises PermissionRefused: when the target is outside the collection, or the task's owner may not read it
    """
    target = found.link_target
    if target is None and found.kind == "link":
        why = f"{work.source} leads to a forbidden place, or its server does not report its target"
        raise PermissionRefused(why, "leave out links")
    if target is None:
        raise Unsupported(
            f"{work.source} is not a symbolic link, according to its server", "transfer it as a file or directory"
        )
    if target.startswith("/") or led(work.source, target) is None:
        raise PermissionRefused(f"{work.source} leads out of its collection", "follow links, or leave them out")
    return target
