"""Random reads of a file, as a file system needs them."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

from coalloc.api.downloads import broker_of
from coalloc.download.range_reader import RangeReader
from coalloc.download.reader_pool import ReaderPool
from coalloc.download.request import Request, named_files, ranked
from coalloc.engine import open_sources
from coalloc.engine.base import Source
from coalloc.engine.first_answers import FirstAnswers
from coalloc.engine.limits.server_slots import Slots
from coalloc.engine.sessions.parallel import Parallel
from coalloc.errors import ReplicaChanged, UsageError
from coalloc.history.transfers import TransferHistory
from coalloc.model.replicas import Stat

__all__ = ["open_reader"]


async def open_reader(
    request: Request, pool: ReaderPool | None = None, known: Mapping[str, Stat] | None = None
) -> RangeReader:
    """Return the file that the request names, opened for random reads. The caller closes it.

    Its replicas are asked at once, and a read goes to a second one if the first is late. The bytes are not compared
    with a checksum of the whole file. The reader belongs to the running event loop.

    :param pool: forecasts and idle sessions, to share with other readers of this event loop
    :param known: `answers` of an earlier reader of the file: only these replicas are read, and only if they have not
        changed; None for the newest version from all replicas
    :raises NoSuchFile: if no server has the file
    :raises UsageError: if the request names several files
    :raises CoallocError: if no replica can be used, or two contradict each other
    """
    with closing(FirstAnswers()) as first:
        request = request.begun._replace(first=first)
        found, *others = await named_files(request, broker_of(request))
        if others:
            raise UsageError("only one file can be read, but the source names several", "name one of them")
        found = found._replace(file=found.file.without_guests())  # nothing would notice their wrong bytes
        if known is not None:
            left = tuple(each for each in found.file.replicas if each.url in known)
            if not left:
                raise ReplicaChanged("no replica is left that was read before", "open the file again")
            found = found._replace(file=found.file._replace(replicas=left))
        if request.dialers:
            await request.dialers.learn([found])
        file, estimates = ranked(found, TransferHistory.open())
        file = file._replace(vouched=False)  # nothing would notice wrong bytes
        options = replace(request.options, slots=Slots.from_environment())
        open_sources(file, request.engine, options)  # raises an error if there are none, or one is malformed

        def make(i: int) -> Source:
            (source,) = open_sources(file._replace(replicas=(file.replicas[i],)), request.engine, options)
            return source.first_session if isinstance(source, Parallel) else source

        reader = RangeReader(file, make, estimates, pool or ReaderPool(), known or {})
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader
