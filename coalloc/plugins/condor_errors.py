"""Errors as HTCondor wants them from a file transfer plugin: the stage that failed, and the server. Pure."""

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from coalloc.errors import (
    CoallocError,
    DiskFull,
    LoginRefused,
    NoAnswer,
    NoSuchFile,
    NotAllowed,
    NothingToFetchFrom,
    NotThatProtocol,
    PermissionRefused,
    Stalled,
    TransferFailed,
    UnknownHost,
    Unreachable,
    UsageError,
)
from coalloc.model.reports import TransferReport
from coalloc.plugins.classads import Value
from coalloc.safe_text import redact

__all__ = ["error_ads"]


class Stage(NamedTuple):
    """A stage of a transfer as HTCondor names it, and the further type of its failures, if it has one."""

    name: str
    failure: str | None = None


STAGES: Sequence[tuple[tuple[type[CoallocError], ...], Stage]] = [
    ((UsageError,), Stage("Parameter")),
    ((UnknownHost,), Stage("Resolution", "Definitive")),
    ((Unreachable, NotThatProtocol, NoAnswer), Stage("Contact")),
    ((LoginRefused,), Stage("Authorization", "Authentication")),
    ((PermissionRefused, NotAllowed), Stage("Authorization", "Authorization")),
    ((DiskFull,), Stage("Transfer", "NoSpace")),
    ((Stalled,), Stage("Transfer", "TimedOut")),
    ((TransferFailed,), Stage("Transfer", "Other")),
    ((NoSuchFile, NothingToFetchFrom), Stage("Specification")),
]
"""Stages by class of the error; the first match counts."""
OTHER = Stage("Transfer", "Other")


def error_ads(
    error: CoallocError, urls: Sequence[str], report: TransferReport | None, version: str
) -> list[dict[str, Value]]:
    """Return the ads of one failed attempt: one for each source that failed, or one for all.

    :param report: the results so far, if the transfer began
    """
    failed = [(each.url, each.error) for each in report.sources if each.error] if report else []
    stage = _stage(error)
    if not failed or stage.name == "Parameter":
        failed = [(url, f"{error}: {error.remedy}") for url in urls[:1]]
    return [_ad(error, stage, url, why or str(error), version) for url, why in failed]


def _stage(error: CoallocError) -> Stage:
    return next((stage for classes, stage in STAGES if isinstance(error, classes)), OTHER)


def _ad(error: CoallocError, stage: Stage, url: str, why: str, version: str) -> dict[str, Value]:
    server, name = _server(url)
    ad: dict[str, Value] = {"ErrorType": stage.name, "ErrorCode": error.status, "ErrorString": " ".join(why.split())}
    match stage.name:
        case "Parameter":
            ad |= {"PluginVersion": version, "PluginLaunched": True}
        case "Resolution":
            ad |= {"FailedName": name}
        case _:
            ad |= {"FailedServer": server}
    if stage.failure:
        ad["FailureType"] = stage.failure
    if stage.name == "Authorization":
        ad["ShouldRefresh"] = False
    return {**ad, "Retryable": 0 if error.transient else -1, "DeveloperData": {"Code": error.code, "Url": redact(url)}}


def _server(url: str) -> tuple[str, str]:
    """Return the host with its port, and the host, of a URL; the URL itself if it has none or is malformed.

    >>> _server("http://token@a:80/x"), _server("scope:x"), _server("http://[a/x?key")
    (('a:80', 'a'), ('scope:x', 'scope:x'), ('http://[a/x?...', 'http://[a/x?...'))
    """
    shown = redact(url)
    try:
        parts = urlsplit(shown)
    except ValueError:
        return shown, shown
    return parts.netloc or shown, parts.hostname or shown
