"""Catalogues: DOIs, DRS, ESGF and Rucio. Each answers with the files of a name, and all their copies.

The answers are data from the network: see docs/explanation/trust.md.
"""

import asyncio
from collections.abc import Sequence

from coalloc.config import catalogue_settings
from coalloc.credentials import Credentials
from coalloc.errors import NothingToFetchFrom, TooMuch, UsageError
from coalloc.model.replicas import ReplicaSet
from coalloc.resolve.catalogues.documents import DocumentReader
from coalloc.resolve.file_names import UNPRINTABLE
from coalloc.resolve.replica_urls import without_copy
from coalloc.util.dialer import Dialer

__all__ = ["files_of"]

MOST_SECONDS = 1800
"""Maximum time for all answers about one name."""


async def files_of(
    source: str, dialers: Sequence[Dialer], credentials: Credentials | None, whole: bool = False
) -> list[ReplicaSet]:
    """Return the files of a name in a catalogue; the names of several are paths below one directory.

    :param dialers: dialers over all routes to the catalogue
    :param credentials: those that the server of the name may get
    :param whole: whether the caller fetches several files: then some of them may have no copy, but not all
    :raises UsageError: if the name or an answer is malformed
    :raises SourceError: if a catalogue does not answer, or does not know the name
    """
    if UNPRINTABLE.search(source):
        raise UsageError(f"{source[:200]!r} has a control character", "check the name")
    reader = DocumentReader(tuple(dialers), credentials)
    try:
        async with asyncio.timeout(MOST_SECONDS):
            files = await _asked(source, reader)
    except TimeoutError:
        raise TooMuch(
            f"{source}: its catalogue took more than {MOST_SECONDS} s", "fetch its parts one by one"
        ) from None
    if not files:
        raise NothingToFetchFrom(f"{source} has no file", "check the name")
    lacking = [file for file in files if not file.replicas]
    if lacking and not (whole and len(lacking) < len(files)):
        error = without_copy(lacking[0])
        raise NothingToFetchFrom(f"{source}: {error.message}", error.remedy)
    return files


async def _asked(source: str, reader: DocumentReader) -> list[ReplicaSet]:
    """Return what the catalogue of a name says."""
    settings = catalogue_settings()
    match source.partition(":")[0].lower():
        case "drs":
            from coalloc.resolve.catalogues import drs

            files = await drs.files_of(source, reader, settings)
        case "esgf":
            from coalloc.resolve.catalogues import esgf

            files = await esgf.files_of(source, reader.of_others(), settings.esgf)
        case "rucio":
            from coalloc.resolve.catalogues import rucio

            files = await rucio.files_of(source, reader)
        case _:
            from coalloc.resolve.catalogues import doi

            files = await doi.files_of(source, reader.of_others(), settings.doi)
    return files
