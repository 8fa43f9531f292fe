"""The meaning of an error for a task: its fault code, as Globus names it, and whether to try again; pure."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from broker.errors import CredentialRefused, Unavailable
from broker.models.tasks import Options, Work
from broker.models.work import Result
from broker.worker.policy.unverified import Unverifiable
from coalloc import errors

__all__ = ["MISSING", "Fault", "at_source", "failed", "fault", "pause", "poisoned"]

MISSING = "FILE_NOT_FOUND"
ATTEMPTS = 3
"""Attempts at work whose error is unlikely to pass by itself."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Seconds before the next attempt; they double each time."""


class Fault(NamedTuple):
    """An error as a task reports it.

    :param lasting: whether another attempt is useless until a user or admin acts
    """

    code: str
    lasting: bool


CODES: tuple[tuple[type[errors.CoallocError], Fault], ...] = (
    (errors.IsDirectory, Fault("IS_A_DIRECTORY", True)),
    (errors.NotDirectory, Fault("NOT_A_DIRECTORY", True)),
    (errors.AlreadyThere, Fault("EXISTS", True)),
    (errors.NotEmpty, Fault("NOT_EMPTY", True)),
    (errors.NoSpace, Fault("NO_SPACE_LEFT", False)),
    (errors.NoSuchFile, Fault(MISSING, True)),
    (errors.PermissionRefused, Fault("PERMISSION_DENIED", True)),
    (errors.NotAllowed, Fault("PERMISSION_DENIED", True)),
    (errors.ReplicaChanged, Fault("FILE_SIZE_CHANGED", False)),
    (errors.VerificationError, Fault("VERIFY_CHECKSUM", True)),
    (errors.Unsupported, Fault("ENDPOINT_ERROR", True)),
    (errors.NotThatProtocol, Fault("ENDPOINT_ERROR", True)),
    (errors.LimitExceeded, Fault("ENDPOINT_ERROR", True)),
    (errors.ServerBusy, Fault("ENDPOINT_TOO_BUSY", False)),
    (errors.Stalled, Fault("TIMEOUT", False)),
    (errors.ConnectionLost, Fault("CONNECTION_BROKEN", False)),
    (errors.Unreachable, Fault("CONNECT_FAILED", False)),
    (errors.UnknownHost, Fault("CONNECT_FAILED", False)),
    (errors.DiskFull, Fault("NO_SPACE_LEFT", False)),
    (errors.SinkError, Fault("ENDPOINT_ERROR", True)),
    (errors.UsageError, Fault("UNKNOWN", True)),
)


def fault(error: Exception) -> Fault:
    """Return the fault of an error."""
    if isinstance(error, Unavailable):
        return Fault("INTERNAL_ERROR", False)
    for kind, known in CODES:
        if isinstance(error, kind):
            return known
    return Fault("UNKNOWN", not isinstance(error, errors.CoallocError))


@contextmanager
def at_source() -> Iterator[None]:
    """Mark errors in the block as the source's: only such errors may be skipped."""
    try:
        yield
    except errors.SourceError as error:
        error.at_source = True
        raise


def failed(work: Work, error: Exception, options: Options) -> Result:
    """Return the result of a failed attempt: work that is tried again, skipped or failed."""
    code, lasting = fault(error)
    said = str(error) or type(error).__name__
    if isinstance(error, errors.AddressRefused | CredentialRefused):
        said = f"{said} ({error.remedy})"
    if isinstance(error, Unverifiable):  # another copy could not be verified either
        return Result(work, "failed", error_code=code, error=f"{said} ({error.remedy})")
    if code == "NO_SPACE_LEFT" and options.fail_on_quota_errors:
        return Result(work, "failed", error_code=code, error=said)
    if lasting and isinstance(error, errors.SourceError) and error.at_source and options.skip_source_errors:
        return Result(work, "skipped", error_code=code, error=said)
    if lasting and work.attempt >= ATTEMPTS:
        return Result(work, "failed", error_code=code, error=said)
    return Result(work, "pending", error_code=code, error=said, pause=pause(work.attempt))


def poisoned(work: Work) -> Result | None:
    """Return the failure of a work item that is not tried again because workers died of it; None for any other."""
    if work.lost < ATTEMPTS:
        return None
    return Result(work, "failed", error_code="WORKER_LOST", error=f"{work.lost} workers died while they were at it")


def pause(attempt: int) -> float:
    """Return the seconds between an attempt and the next; the first attempt is 1.

    >>> pause(1), pause(3), pause(20)
    (1.0, 4.0, 120.0)
    """
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt - 1, 10)))
