"""Sessions with GridFTP servers, and copies between them, whose bytes do not pass this machine. Connects the parts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import getrandbits
from typing import TYPE_CHECKING

from coalloc.config import own_policy
from coalloc.download.to_server import ServerCopy
from coalloc.engine.base import Admission, EngineOptions
from coalloc.engine.gridftp.address import parse
from coalloc.engine.gridftp.remote_source import RemoteSource, Sink
from coalloc.engine.gridftp.storage import Storage, open_storage
from coalloc.engine.gridftp.thirdparty import ThirdParty, open_third_party
from coalloc.model.checksums import Confirm
from coalloc.model.forecasts import Estimate
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import Replica, ReplicaSet
from coalloc.model.reports import Results, TransferReport
from coalloc.schedule.policies import make
from coalloc.util.addresses import AddressPolicy
from coalloc.util.checksums import parse as parse_checksum
from coalloc.util.dialer import DirectDialer
from coalloc.util.partial_names import at_random

if TYPE_CHECKING:
    from coalloc.depot.data_routes import DataRoutes

__all__ = ["Storage", "ThirdParty", "copy", "storage", "third_party"]

Proxies = tuple[Path | None, Path | None]


async def storage(
    url: str,
    proxy: Path | None = None,
    data_hosts: frozenset[str] = frozenset(),
    delegate: frozenset[str] = frozenset(),
    policy: AddressPolicy | None = None,
) -> Storage:
    """Open a session with the GridFTP server of a URL, to list, make, rename and delete; also an async context manager.

    :param url: `ftp://[USER:PASSWORD@]HOST[:PORT]/` or `gsiftp://...`; a path in it is ignored
    :param proxy: the file of the proxy certificate to show; None for the user's usual one
    :param data_hosts: third hosts that may send listings
    :param delegate: hosts that may get a limited proxy if they require one
    :param policy: the addresses that the server may have; None for the user's own policy
    :raises SourceError: when the login fails
    """
    options = EngineOptions(_dialer(policy), data_hosts=data_hosts, delegate=delegate)
    return await open_storage(url, options, proxy)


async def third_party(
    source: str,
    sink: str,
    proxies: Proxies = (None, None),
    parallelism: int = 1,
    stall_seconds: float = 30.0,
    data_hosts: frozenset[str] = frozenset(),
    delegate: frozenset[str] = frozenset(),
    policy: AddressPolicy | None = None,
    via: "DataRoutes | None" = None,
) -> ThirdParty:
    """Open sessions with two GridFTP servers that copy from one to the other; also an async context manager.

    :param source: the URL of the sending server, as for `storage`
    :param sink: the URL of the receiving server; the source has to reach it at its host, or at one of `data_hosts`
    :param proxies: the files of the proxy certificates for source and sink; None for the user's usual one
    :param parallelism: streams between them
    :param stall_seconds: time without progress after which copies fail; servers report progress every 5 s
    :param delegate: hosts that may get a limited proxy; if one server requires it, name both
    :param policy: the addresses that the servers may have; None for the user's own policy
    :param via: routes over depots to the sink, made by `data_routes`; None for direct connections
    :raises SourceError: when a server refuses the login, or the two cannot connect to each other
    """
    options = _options(parallelism, data_hosts, delegate, policy, via)
    return await open_third_party(source, sink, options, proxies, stall_seconds)


async def copy(
    sources: Sequence[str],
    sink: str,
    size: int | None = None,
    strategy: str = "adaptive",
    checksums: Sequence[str] = (),
    estimates: Mapping[str, Estimate] | None = None,
    proxies: Proxies = (None, None),
    parallelism: int = 1,
    data_hosts: frozenset[str] = frozenset(),
    watch: Callable[[Snapshot], None] | None = None,
    beside: str | None = None,
    limits: Mapping[str, Admission] | None = None,
    delegate: frozenset[str] = frozenset(),
    policy: AddressPolicy | None = None,
    confirm: Confirm | None = None,
    results: Results[TransferReport] | None = None,
    via: "DataRoutes | None" = None,
) -> TransferReport:
    """Copy one file from several GridFTP servers at once to another one, verified by the servers' own checksums.

    The file has a temporary name until it is complete; then it replaces an existing file. A copy that fails or is
    cancelled leaves nothing behind, if the sink can still be reached.

    :param sources: URLs of replicas
    :param sink: the URL of the file to be written, in an existing directory
    :param size: size of the file, if known; replicas of another size are left out
    :param checksums: all known checksums, "ALGORITHM:HEX"; the strongest that the sink can compute decides. If none is
        known, each range is compared with another replica's checksum of it
    :param estimates: forecasts for the links from a source to the sink, by the source's URL
    :param proxies: the files of the proxy certificates for sources and sink; None for the user's usual one
    :param parallelism: streams from each source
    :param watch: receives snapshots during the copy
    :param beside: the temporary path at the sink, which must not exist; None for a random one. A process that must find
        it after this one has died has to choose it
    :param limits: by source URL, the admission to wait for before each piece; other sources need none
    :param delegate: hosts that may get a limited proxy, as for `third_party`
    :param policy: the addresses that servers may have; None for the user's own policy
    :param confirm: awaited when the file is complete, before it gets its name; if it raises, the file does not get the
        name
    :param results: gets the report of a copy that fails or is cancelled
    :param via: routes over depots to the sink, as for `third_party`
    :raises CoallocError: as a download does, or NoSpace at the sink
    """
    address = parse(sink)
    expected = tuple(map(parse_checksum, checksums))
    file = ReplicaSet(address.path.rpartition("/")[2], tuple(map(Replica, sources)), size, expected)
    options = _options(parallelism, data_hosts, delegate, policy, via)
    names = beside or at_random(address.named), address.named
    where = Sink(sink, names[0], proxies[1])
    held = [replace(options, admission=(limits or {}).get(url)) for url in sources]
    replicas = [RemoteSource(url, where, each, proxies[0]) for url, each in zip(sources, held, strict=True)]
    known = [(estimates or {}).get(url, Estimate()) for url in sources]
    connect = partial(open_storage, sink, options, proxies[1])
    shares = make(strategy, widens=False)
    shown = address.shown
    copying = ServerCopy(file, replicas, known, connect, names, shown, shares, watch, getrandbits(32), confirm)
    with (results or Results()).of(copying.report):
        return await copying.run()


def _options(
    streams: int,
    data_hosts: frozenset[str],
    delegate: frozenset[str],
    policy: AddressPolicy | None,
    via: "DataRoutes | None",
) -> EngineOptions:
    return EngineOptions(_dialer(policy), streams=streams, data_hosts=data_hosts, delegate=delegate, data_routes=via)


def _dialer(policy: AddressPolicy | None) -> DirectDialer:
    return DirectDialer(own_policy() if policy is None else policy)
