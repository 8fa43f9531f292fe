"""Names in catalogues: their syntax. Pure; `catalogues` asks the catalogues."""

import re
from collections.abc import Sequence

from coalloc.errors import UsageError

__all__ = ["directory_of", "is_catalogued", "refuse_several"]

CATALOGUED = re.compile(r"(?:doi|esgf|rucio|coget):(?!//)|drs://|https?://(?:dx\.)?doi\.org/10\.", re.IGNORECASE)
SHOWN = 20
"""Maximum number of files listed in a message."""


def is_catalogued(source: str) -> bool:
    """Return whether a source is a name in a catalogue.

    >>> [is_catalogued(each) for each in ("doi:10.1/x", "https://doi.org/10.1/x", "drs://h/1", "coget://s:x", "s:x")]
    [True, True, True, False, False]
    """
    return bool(CATALOGUED.match(source))


def directory_of(source: str) -> str:
    """Return the name of the directory for the files of a name.

    >>> directory_of("doi:10.5281/zenodo.7"), directory_of("rucio:user.a:set"), directory_of("doi:10.1/..")
    ('zenodo.7', 'set', 'download')
    """
    name = re.split("[/:#?]", source.partition("#")[0].rstrip("/"))[-1]
    return name if re.fullmatch(r"[\w+=@,~-][\w.+=@,~-]*", name) else "download"


def refuse_several(source: str, names: Sequence[str]) -> UsageError:
    """Return the error for a name of several files, which lists them."""
    shown = [repr(name[:200]) for name in names[:SHOWN]]
    more = [f"and {len(names) - SHOWN} others"] if len(names) > SHOWN else []
    one = f", or one with: coget '{source}#NAME'" if source.lower().startswith(("doi:", "http")) else ""
    return UsageError(
        f"{source} has {len(names)} files:", f"fetch all of them with: coget get -r '{source}'{one}", [*shown, *more]
    )
