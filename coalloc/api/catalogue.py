"""Plans, and datasets of a broker: queries that move no data."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial

from coalloc.api.downloads import broker_of
from coalloc.broker_client import Broker, DatasetEntry
from coalloc.config import some_access
from coalloc.download.file_queries import planned_file
from coalloc.download.preview import preview
from coalloc.download.request import Request, dialers, named_files, several_files
from coalloc.download.server_to_server import storage
from coalloc.errors import UsageError
from coalloc.guarantees.checks import check_deadline
from coalloc.model.forecasts import Estimate, FoundReplicas
from coalloc.model.plans import Plan, Strategy
from coalloc.model.replicas import ReplicaSet, Stat
from coalloc.resolve.inventory import Registered, register_below
from coalloc.schedule.policies import make

__all__ = ["datasets", "metalink", "plan", "planned", "register", "register_directory", "search"]


async def plan(request: Request) -> list[Plan]:
    """Return the plan of each file's transfer; only ask the servers for sizes.

    :raises UsageError: if the request has a deadline that is no time, or with a probability out of its limits
    """
    if request.deadline:
        check_deadline(request.deadline)
    made = request.dialers or dialers(request.own, request.via, request.broker)
    request = request._replace(dialers=made)
    files = await named_files(request, broker_of(request))
    if request.deadline and len(files) > 1:
        raise several_files()
    await made.learn(files)
    return [(await planned_file(request, found))[0] for found in files]


async def metalink(request: Request) -> str:
    """Return a Metalink 4 document of the files: replicas that answer, the best first, with an agreed checksum.

    If a file has no known checksum, its servers are asked to compute one, for which they read the whole file.
    """
    from coalloc.resolve.metalink import write  # imported here because it imports a parser of XML

    files = await named_files(request, broker_of(request))
    described = [(await planned_file(request, found, ask_checksum=True))[1] for found in files]
    return write(described, datetime.now(UTC))


def planned(file: ReplicaSet, estimates: Sequence[Estimate], strategy: Strategy = "adaptive") -> Plan:
    """Return the plan for a file of known size without asking its servers; assume that all of them answer.

    :param estimates: forecast of each replica, in their order
    """
    stat = Stat(file.size or 0)
    answers = dict.fromkeys(range(len(file.replicas)), stat)
    return preview(file, estimates, make(strategy), answers, file.checksums)


async def search(beginning: str, most: int = 100, broker: str | None = None) -> list[DatasetEntry]:
    """Return datasets of a broker whose names begin with `beginning`.

    :raises UsageError: if no broker is known
    """
    return await Broker(some_access(broker)).search(beginning, most)


async def datasets(names: Sequence[str], broker: str | None = None) -> list[FoundReplicas]:
    """Return the replicas of these datasets in a broker's catalogue, with forecasts.

    :raises UsageError: if no broker is known
    """
    return await Broker(some_access(broker)).resolve(names)


async def register(name: str, urls: Sequence[str], broker: str | None = None) -> tuple[ReplicaSet, int]:
    """Register replicas of a dataset with a broker; return the registered file and the number of new replicas.

    The servers are asked for the size, and for a checksum on which all agree. Raises the errors of `plan`, and a
    UsageError if no broker is known.
    """
    known = Broker(some_access(broker))
    request = Request(tuple(urls))
    found, *others = await named_files(request, None)
    if others:
        raise UsageError(f"{urls[0]} has several files", "register them one by one")
    found = found._replace(file=found.file.without_guests())  # a server does not decide what is registered
    _, file = await planned_file(request, found, ask_checksum=True)
    return file, await known.register(name, file)


async def register_directory(name: str, url: str, broker: str | None = None) -> Registered:
    """Register with a broker every file below a GridFTP server's directory; dataset names begin with `name`.

    The server computes checksums where it can.

    :raises SourceError: when a directory cannot be listed or a file cannot be read
    :raises UsageError: when no broker is known, or there are no files
    """
    return await register_below(Broker(some_access(broker)), name, url, partial(storage, url))
