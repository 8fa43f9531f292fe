"""The public API and composition root: download, plan, probe, history. Connects all parts; decides nothing.

Importing it loads nothing else. Each name is imported from its module when it is first used, as the modules of all
names together take longer to import than a small file to fetch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    import httpx

    from coalloc.api.batches import download_directory, download_files, download_list
    from coalloc.api.catalogue import datasets, metalink, plan, planned, register, register_directory, search
    from coalloc.api.downloads import download
    from coalloc.api.readers import open_reader
    from coalloc.api.streams import stream
    from coalloc.broker_client import PlannedFile
    from coalloc.broker_client.depot_routes import data_routes
    from coalloc.broker_client.imports import read_log, remember, remember_globus, report_globus
    from coalloc.broker_client.submission import TaskFailed, TaskRequest, cancel, dry_run, submit, tasks, watch
    from coalloc.collect.runtime.server_name_equality import held
    from coalloc.collect.values import CollectReport, CollectRequest, CollectView, GuaranteedClass
    from coalloc.credentials import Credentials
    from coalloc.depot.data_routes import DataRoutes
    from coalloc.download.file_queries import ServerCheck, check_routes, check_servers
    from coalloc.download.range_reader import RangeReader
    from coalloc.download.reader_pool import ReaderPool
    from coalloc.download.request import Request
    from coalloc.download.server_to_server import Storage, ThirdParty, copy, storage, third_party
    from coalloc.engine import Engine
    from coalloc.engine.base import Admission, Leads
    from coalloc.history.formats import TransferLog as TransferLog
    from coalloc.history.globus_client import tasks as globus_tasks
    from coalloc.history.values import SourceSummary
    from coalloc.model.plans import Strategy
    from coalloc.model.replicas import ReplicaSet
    from coalloc.model.reports import Results
    from coalloc.partial_file import discard, held_in
    from coalloc.planner.documents.scenario import Scenario
    from coalloc.resolve.file_list import read as read_list
    from coalloc.resolve.inventory import Registered
    from coalloc.util.addresses import AddressPolicy
    from coalloc.util.partial_names import private as private_name

__all__ = [
    "Admission",
    "CollectRequest",
    "Credentials",
    "DataRoutes",
    "Engine",
    "GuaranteedClass",
    "Leads",
    "PlannedFile",
    "RangeReader",
    "ReaderPool",
    "Registered",
    "Request",
    "Results",
    "ServerCheck",
    "Storage",
    "Strategy",
    "TaskFailed",
    "TaskRequest",
    "ThirdParty",
    "cancel",
    "check_routes",
    "check_servers",
    "collect",
    "copy",
    "data_routes",
    "datasets",
    "discard",
    "download",
    "download_directory",
    "download_files",
    "download_list",
    "dry_run",
    "globus_tasks",
    "held",
    "held_in",
    "history",
    "http_client",
    "metalink",
    "metalink_document",
    "metalink_files",
    "open_reader",
    "plan",
    "planned",
    "private_name",
    "read_list",
    "read_log",
    "register",
    "register_directory",
    "remember",
    "remember_globus",
    "report_globus",
    "search",
    "storage",
    "stream",
    "submit",
    "tasks",
    "third_party",
    "watch",
]

MODULES = {
    "coalloc.api.batches": ("download_directory", "download_files", "download_list"),
    "coalloc.api.catalogue": (
        "datasets",
        "metalink",
        "plan",
        "planned",
        "register",
        "register_directory",
        "search",
    ),
    "coalloc.api.downloads": ("download",),
    "coalloc.api.readers": ("open_reader",),
    "coalloc.api.streams": ("stream",),
    "coalloc.broker_client": ("PlannedFile",),
    "coalloc.broker_client.depot_routes": ("data_routes",),
    "coalloc.broker_client.imports": (
        "read_log",
        "remember",
        "remember_globus",
        "report_globus",
    ),
    "coalloc.broker_client.submission": (
        "TaskFailed",
        "TaskRequest",
        "cancel",
        "dry_run",
        "submit",
        "tasks",
        "watch",
    ),
    "coalloc.collect.runtime.server_name_equality": ("held",),
    "coalloc.collect.values": ("CollectRequest", "GuaranteedClass"),
    "coalloc.credentials": ("Credentials",),
    "coalloc.depot.data_routes": ("DataRoutes",),
    "coalloc.download.range_reader": ("RangeReader",),
    "coalloc.download.reader_pool": ("ReaderPool",),
    "coalloc.download.request": (
        "Engine",
        "Request",
    ),
    "coalloc.download.file_queries": (
        "ServerCheck",
        "check_routes",
        "check_servers",
    ),
    "coalloc.download.server_to_server": (
        "Storage",
        "ThirdParty",
        "copy",
        "storage",
        "third_party",
    ),
    "coalloc.engine.base": (
        "Admission",
        "Leads",
    ),
    "coalloc.model.plans": ("Strategy",),
    "coalloc.model.reports": ("Results",),
    "coalloc.partial_file": (
        "discard",
        "held_in",
    ),
    "coalloc.resolve.inventory": ("Registered",),
}
"""Public names of each module."""
PLACES = {
    **{name: (module, name) for module, names in MODULES.items() for name in names},
    "globus_tasks": ("coalloc.history.globus_client", "tasks"),
    "read_list": ("coalloc.resolve.file_list", "read"),
    "private_name": ("coalloc.util.partial_names", "private"),
}
"""Module of each name, and its name there."""


if not TYPE_CHECKING:  # or mypy would accept any name

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, there = PLACES[name]
        found = globals()[name] = getattr(import_module(module), there)
        return found


async def collect(
    wanted: "CollectRequest",
    watch: "Callable[[CollectView], None] | None" = None,
    network: "Scenario | None" = None,
    results: "Results[CollectReport] | None" = None,
) -> "CollectReport":
    """Collect many files from GridFTP servers to one place, over relays where the method chooses them.

    A file appears at its destination only when it is complete and, where checksums are available, compared with its
    origin. An existing file is not replaced, unless `wanted` says so. Cancelling removes temporary files from relays;
    `left` in the report lists those that remain. After an error or a cancellation, `results` has the report so far.

    :param watch: receives views during the collect job
    :param network: hosts that take part in addition to the named servers, and the links between them; missing values
        are taken from measurements. The host without a server is this machine. Without a network, every host is assumed
        to reach every other one, and missing measurements are guessed
    :raises CoallocError: when a file could not be collected
    """
    from coalloc.collect.composition import collect
    from coalloc.model.reports import Results

    return await collect(wanted, watch, network, results or Results())


def metalink_files(document: bytes, where: str) -> "list[ReplicaSet]":
    """Return the files that a Metalink 4 document describes; messages call it `where`. Raises a UsageError."""
    from coalloc.resolve.metalink import read

    return read(document, where)


def metalink_document(files: "Sequence[ReplicaSet]", published: "datetime") -> str:
    """Return a Metalink 4 document of described files; `published` is an aware time."""
    from coalloc.resolve.metalink import write

    return write(files, published)


def http_client(url: str, policy: "AddressPolicy", seconds: float) -> "httpx.AsyncClient":
    """Return a client for the server of a URL; it connects only to allowed addresses, and follows no redirects.

    Requests by http to this machine bypass proxies, which would see unencrypted content.

    :raises ValueError: for an impossible host or port
    """
    from coalloc.credentials.origins import WebOrigin
    from coalloc.engine.http.transport import client
    from coalloc.util.dialer import DirectDialer

    server = WebOrigin.of(url)
    direct = server.scheme == "http" and server.is_loopback
    return client(url, DirectDialer(policy), seconds, lambda _: None, direct=direct)


def history() -> "list[SourceSummary]":
    """Return the results of this user's transfers at each source."""
    from coalloc.history.transfers import TransferHistory

    return TransferHistory.open().summary()
