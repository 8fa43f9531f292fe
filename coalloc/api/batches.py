"""Many files of a list or of a directory: their names are looked up, then they are fetched, several at a time."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from coalloc.api.downloads import broker_of, fetch_file, sending_traces, with_traces
from coalloc.download.many import AT_ONCE, FileResult, ManyFiles, ManyView
from coalloc.download.request import Request, named_files
from coalloc.download.small_files import SmallFiles
from coalloc.engine import open_lister
from coalloc.engine.http.dav_urls import web_url
from coalloc.errors import CoallocError, FilesFailed, NothingToFetchFrom, SourceError, TooMuch, UsageError
from coalloc.history.fetched import FetchedFiles, FetchedGroup
from coalloc.history.grouped_history import GroupedHistory
from coalloc.model.progress import Snapshot
from coalloc.model.replicas import Origin, Replica, ReplicaSet, Stat
from coalloc.model.reports import Results, TransferReport
from coalloc.partial_file import HeldHere
from coalloc.resolve import ends_as_metalink, file_list, refuse_collisions
from coalloc.resolve.catalogue_names import is_catalogued
from coalloc.resolve.federation_lister import FederationLister
from coalloc.resolve.file_names import why_unsafe
from coalloc.resolve.replica_urls import admitted, check, is_federated, replica_set, without_copy
from coalloc.resolve.trees import FoundTree, entry_url, files_below
from coalloc.safe_text import redact
from coalloc.util.addresses import policy_of
from coalloc.util.concurrency import gather
from coalloc.util.disk import in_thread
from coalloc.util.listing_limits import MOST_BELOW

if TYPE_CHECKING:
    from coalloc.broker_client import Broker

__all__ = ["download_directory", "download_files", "download_list"]


class Found(NamedTuple):
    """The files of a list, and the errors of lines that could not be looked up, by their text."""

    files: list[ReplicaSet]
    errors: dict[str, CoallocError]


async def download_list(
    request: Request,
    listed: Sequence[file_list.ListedFile],
    take: Callable[[FileResult], None],
    watch: Callable[[ManyView], None] | None = None,
    typed: bool = True,
) -> None:
    """Fetch the files of a list into the directory `request.output`; `request.sources` is not used.

    :param listed: the list, as from `api.read_list`
    :param take: called for each file when it is complete or has failed
    :param watch: receives views
    :param typed: whether the user vouches for the list like for the command line; if not, it is treated as a document:
        it may name only network addresses, and replaces no file
    :raises UsageError: before anything is fetched, for an invalid list, or two files of one name
    :raises FilesFailed: at the end, if files failed
    """
    if not listed:
        raise UsageError("the list names no file", "write one URL a line")
    origin = Origin() if typed else Origin("document")
    request = request._replace(policy=policy_of(origin, request.own)).begun
    assert request.credentials  # made by `begun`
    request = request._replace(credentials=request.credentials.named(origin))
    found = await _looked_up(request, listed, origin)
    await download_files(request, found.files, take, watch, found.errors)


async def download_directory(
    request: Request,
    take: Callable[[FileResult], None],
    watch: Callable[[ManyView], None] | None = None,
    loops: Callable[[list[str]], None] = lambda _: None,
) -> None:
    """Fetch all files below a directory, which `request.sources` name at one or more servers that have the same files.

    A name in a catalogue is a directory of its files.

    :param take: called for each file when it is complete or has failed
    :param watch: receives views
    :param loops: called with the directories that were left out because their listings repeat, if there are any
    :raises SourceError: if no server lists the directory
    :raises FilesFailed: at the end, if files failed
    """
    request = request.begun
    if any(map(is_catalogued, request.named)):
        named = await named_files(request._replace(output=None, whole=True), broker_of(request))
        await download_files(request, [found.file for found in named], take, watch)
        return
    bases = [each if each.endswith("/") else f"{each}/" for each in request.named]
    if not bases:
        raise UsageError("no source was given", "give the URL of a directory")
    for url in bases:
        check(url)
        if urlsplit(url).query or urlsplit(url).fragment:
            raise UsageError(f"{redact(url)} has a query, so it is no directory", "leave the query out")
    lister, tree = await _listed(request, bases)
    if tree.loops:
        loops(tree.loops)
    errors = {**tree.errors}
    files = []
    for name in tree.files:
        if reason := why_unsafe(name):
            errors[name] = UsageError(f"the file name {name[:200]!r} {reason}", "fetch it with -o NAME")
        else:
            files.append(_below(bases, name, lister, tree.stated.get(name)))
    if not (tree.files or errors):
        raise NothingToFetchFrom(f"{redact(bases[0])} has no file", "give another directory")
    await download_files(request, files, take, watch, errors)


async def _listed(request: Request, bases: Sequence[str]) -> tuple[str, FoundTree]:
    """Return the URL of the first server that gives a listing, and the listing."""
    errors = []
    for url in bases:
        lister = FederationLister(request.options) if is_federated(url) else open_lister(url, request.options)
        try:
            return url, await files_below(lister, url)
        except SourceError as error:
            errors.append(error)
        finally:
            await lister.close()
    raise errors[0]


def _below(bases: Sequence[str], name: str, lister: str, stated: Stat | None) -> ReplicaSet:
    """Return a file below these directories, one of which was listed."""
    replicas = (Replica(entry_url(web_url(base), name), stated=stated if base == lister else None) for base in bases)
    return ReplicaSet(name, tuple(replicas), origin=Origin("server"))


async def download_files(
    request: Request,
    files: Sequence[ReplicaSet],
    take: Callable[[FileResult], None],
    watch: Callable[[ManyView], None] | None = None,
    errors: dict[str, CoallocError] | None = None,
) -> None:
    """Fetch these files, whose names are paths below the directory `request.output`.

    :param errors: errors of further files, which are known already
    :raises FilesFailed: at the end, if files failed
    """
    errors, request = errors or {}, with_traces(request.begun, files)
    errors = errors | {file.name: without_copy(file) for file in files if not file.replicas}
    files = [file for file in files if file.replicas]
    if request.output and isinstance(request.output, str):
        request = request._replace(output=Path(request.output))  # with a slash at its end, too: it is made if missing
    path = request.path
    await refuse_collisions(await in_thread(_places, [file.name for file in files], path or Path()), HeldHere(path))
    for name, error in errors.items():
        take(FileResult(name, None, error))
    past, fetched, small = GroupedHistory.open(), FetchedGroup(FetchedFiles.open()), SmallFiles()
    try:
        failed = dict(errors)
        fetch = partial(_fetch, request, broker_of(request), past, fetched, small)
        many = ManyFiles(str(path or Path()), files, fetch, partial(_ended, take, failed), watch)
        async with sending_traces(request):
            await many.run()
    finally:
        small.close()
        past.flush()
        fetched.flush()
    if failed:
        raise FilesFailed(failed, len(files) + len(errors), many.unbegun)


def _places(names: Sequence[str], top: Path) -> list[str]:
    """Return the names with the links resolved that their directories already are, as two may lead to one place."""
    real = os.path.realpath(top)
    folders = {name.rpartition("/")[0] for name in names}
    places = {each: os.path.relpath(os.path.realpath(f"{real}/{each}"), real) for each in folders}
    split = [name.rpartition("/") for name in names]
    found = [os.path.normpath(f"{places[folder]}/{last}") for folder, _, last in split]
    # Those outside are refused when they are written.
    return [name if place.startswith("../") else place for name, place in zip(names, found, strict=True)]


def _ended(take: Callable[[FileResult], None], failed: dict[str, CoallocError], result: FileResult) -> None:
    if result.error:
        failed[result.name] = result.error
    take(result)


async def _fetch(
    request: Request,
    broker: "Broker | None",
    past: GroupedHistory,
    fetched: FetchedGroup,
    small: SmallFiles,
    file: ReplicaSet,
    watch: Callable[[Snapshot], None],
    results: Results[TransferReport],
) -> TransferReport:
    (found,) = await named_files(request._replace(file=file), broker)
    if request.dialers:
        await request.dialers.learn([found])
    return await fetch_file(request, found, broker, watch, results, past, fetched=fetched, small=small)


async def _looked_up(request: Request, listed: Sequence[file_list.ListedFile], origin: Origin) -> Found:
    """Return the files of a list; Metalinks are read, and the broker is asked about datasets.

    :raises TooMuch: if these are too many files in all
    """
    found = Found([], {})
    others = []
    for each in listed:
        if all(
            "://" in source and not ends_as_metalink(source) and not is_catalogued(source) for source in each.sources
        ):
            found.files.append(_described(each, origin))
        else:
            others.append(each)
    left = iter(others)
    broker = broker_of(request) if others else None

    async def look_up() -> None:
        for each in left:
            try:
                found.files.extend(await _named(request, each, origin, broker))
            except CoallocError as error:
                found.errors[f"line {each.line}"] = error
            if len(found.files) > MOST_BELOW:
                raise TooMuch(f"the list has more than {MOST_BELOW} files, with those of Metalinks", "give it in parts")

    await gather(*(look_up() for _ in range(min(AT_ONCE, len(others)))))
    return found


async def _named(
    request: Request, listed: file_list.ListedFile, origin: Origin, broker: "Broker | None"
) -> list[ReplicaSet]:
    """Return the files of a Metalink, or of a dataset."""
    if origin.kind != "user" and any(map(_is_here, listed.sources)):
        raise UsageError(
            f"{redact(listed.sources[0])} is a file of this machine, which a list on standard input may not name",
            "name it on the command line, or save the list to a file",
        )
    if origin.kind != "user" and any(source.lower().startswith("rucio:") for source in listed.sources):
        raise UsageError(
            f"{redact(listed.sources[0])} needs your login, which a list on standard input may not use",
            "name it on the command line, or save the list to a file",
        )
    if origin.kind != "user":
        urls = tuple(Replica(source) for source in listed.sources if "://" in source)
        for shown, why in admitted(ReplicaSet("", urls), origin).left_out:
            raise UsageError(f"{shown} was {why}", "name it on the command line, or save the list to a file")
    wanted = request._replace(sources=listed.sources, output=None, whole=True)
    found = [each.file for each in await named_files(wanted, broker)]
    if len(found) > 1 and (listed.out or listed.checksum):
        raise UsageError(f"{redact(listed.sources[0])} has several files", "leave out=... and checksum=... out")
    return [_with_options(file, listed, origin) for file in found]


def _is_here(source: str) -> bool:
    return "://" not in source and os.path.lexists(source)


def _described(listed: file_list.ListedFile, origin: Origin) -> ReplicaSet:
    """Return the file of a line with URLs.

    :raises UsageError: if a URL is malformed
    """
    try:
        file = replica_set(listed.sources)
    except UsageError as error:
        raise file_list.at_line(listed.line, error) from None
    return _with_options(file if origin.kind == "user" else admitted(file, origin), listed, origin)


def _with_options(file: ReplicaSet, listed: file_list.ListedFile, origin: Origin) -> ReplicaSet:
    if listed.out:
        file = file._replace(name=listed.out, origin=origin)
    if listed.checksum:
        file = file._replace(checksums=(listed.checksum,), vouched=True)
    return file
