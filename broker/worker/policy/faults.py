"""Consequences of an error for a task: the fault code, as Globus names it, and whether to retry.

A file that cannot be verified fails, or is copied and marked, depending on the configuration.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from broker.errors import CredentialRefused, Unavailable
from broker.models.tasks import Event, Options, Work
from broker.models.work import ErrorSide, WorkResult
from coalloc import errors

__all__ = [
    "MISSING",
    "TaskFault",
    "Unverifiable",
    "VerificationDemand",
    "at_destination",
    "at_source",
    "failed",
    "fault",
    "pause",
    "poisoned",
]

MISSING = "FILE_NOT_FOUND"
ATTEMPTS = 3
"""Number of attempts if the error is unlikely to go away, or if workers die."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 120.0
"""Shortest and longest time in seconds before the next attempt; it doubles after each attempt."""


class TaskFault(NamedTuple):
    """An error in the form that a task reports.

    :param lasting: whether further attempts are likely to fail until a user or admin acts
    """

    code: str
    lasting: bool


CODES: tuple[tuple[type[errors.CoallocError], TaskFault], ...] = (
    (errors.IsDirectory, TaskFault("IS_A_DIRECTORY", True)),
    (errors.NotDirectory, TaskFault("NOT_A_DIRECTORY", True)),
    (errors.AlreadyThere, TaskFault("EXISTS", True)),
    (errors.NotEmpty, TaskFault("NOT_EMPTY", True)),
    (errors.NoSpace, TaskFault("NO_SPACE_LEFT", False)),
    (errors.NoSuchFile, TaskFault(MISSING, True)),
    (errors.LoginRefused, TaskFault("AUTH", False)),  # until a credential is renewed
    (errors.PermissionRefused, TaskFault("PERMISSION_DENIED", True)),
    (errors.NotAllowed, TaskFault("PERMISSION_DENIED", True)),
    (errors.ReplicaChanged, TaskFault("FILE_SIZE_CHANGED", False)),
    (errors.VerificationError, TaskFault("VERIFY_CHECKSUM", True)),
    (errors.Unsupported, TaskFault("ENDPOINT_ERROR", True)),
    (errors.NotThatProtocol, TaskFault("ENDPOINT_ERROR", True)),
    (errors.LimitExceeded, TaskFault("ENDPOINT_ERROR", True)),
    (errors.ServerBusy, TaskFault("ENDPOINT_TOO_BUSY", False)),
    (errors.Stalled, TaskFault("TIMEOUT", False)),
    (errors.ConnectionLost, TaskFault("CONNECTION_BROKEN", False)),
    (errors.Unreachable, TaskFault("CONNECT_FAILED", False)),
    (errors.UnknownHost, TaskFault("CONNECT_FAILED", False)),
    (errors.DiskFull, TaskFault("NO_SPACE_LEFT", False)),
    (errors.SinkError, TaskFault("ENDPOINT_ERROR", True)),
    (errors.UsageError, TaskFault("UNKNOWN", True)),
)


def fault(error: Exception) -> TaskFault:
    """Return the fault of an error; if all sources failed, that of a source which may work again."""
    if isinstance(error, Unavailable):
        return TaskFault("INTERNAL_ERROR", False)
    error = _reported(error)
    for kind, known in CODES:
        if isinstance(error, kind):
            return known
    return TaskFault("UNKNOWN", not isinstance(error, errors.CoallocError))


def _causes(error: Exception) -> Sequence[Exception]:
    """Return the errors that an error sums up, or the error itself."""
    return (isinstance(error, errors.CoallocError) and error.causes) or (error,)


def _reported(error: Exception) -> Exception:
    """Return the error whose fault is reported: if all sources failed, that of one which may work again."""
    causes = _causes(error)
    if causes == (error,):
        return error
    return next((each for each in causes if not fault(each).lasting), causes[0])


@contextmanager
def at_source() -> Iterator[None]:
    """Mark errors in the block as errors of the source: `skip_source_errors` applies only to these."""
    try:
        yield
    except errors.SourceError as error:
        error.blame_source()
        raise


@contextmanager
def at_destination() -> Iterator[None]:
    """Mark errors in the block as errors of the destination."""
    try:
        yield
    except errors.SourceError as error:
        error.blame_destination()
        raise


def failed(work: Work, error: Exception, options: Options) -> WorkResult:
    """Return the result of a failed attempt: the work item is retried, skipped or failed."""
    code, lasting = fault(error)
    message = str(error) or type(error).__name__
    if isinstance(error, errors.AddressRefused | CredentialRefused):
        message = f"{message} ({error.remedy})"
    if isinstance(error, Unverifiable):  # a retry could not be verified either
        return WorkResult(work, "failed", error_code=code, error=f"{message} ({error.remedy})")
    if code == "NO_SPACE_LEFT" and options.fail_on_quota_errors:
        return WorkResult(work, "failed", error_code=code, error=message)
    if lasting and options.skip_source_errors and all(map(_only_at_source, _causes(error))):
        return WorkResult(work, "skipped", error_code=code, error=message)
    if lasting and work.attempt >= ATTEMPTS:
        return WorkResult(work, "failed", error_code=code, error=message)
    return WorkResult(work, "pending", error_code=code, error=message, pause=pause(work.attempt), side=_side(error))


def _side(error: Exception) -> ErrorSide:
    """Return the collection at which the error that is reported arose; empty if that is unknown."""
    error = _reported(error)
    if isinstance(error, errors.NothingToFetchFrom | errors.NotAllowed | errors.TransferFailed):
        return "source"
    if isinstance(error, errors.SinkError | errors.NoSpace):
        return "destination"
    if not isinstance(error, errors.SourceError) or error.at_source == error.at_destination:
        return ""
    return "source" if error.at_source else "destination"


def _only_at_source(error: Exception) -> bool:
    return isinstance(error, errors.SourceError) and error.at_source and not error.at_destination


def poisoned(work: Work) -> WorkResult | None:
    """Return a failure for a work item that was lost with `ATTEMPTS` dead workers; otherwise None."""
    if work.lost < ATTEMPTS:
        return None
    return WorkResult(
        work, "failed", error_code="WORKER_LOST", error=f"{work.lost} workers died while they worked on it"
    )


def pause(attempt: int) -> float:
    """Return the time in seconds between an attempt and the next; the first attempt is number 1.

    >>> pause(1), pause(3), pause(20)
    (1.0, 4.0, 120.0)
    """
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(attempt - 1, 10)))


class Unverifiable(errors.VerificationError):
    """A file whose copy cannot be compared with the original."""


class VerificationDemand(NamedTuple):
    """The verification that a task requires.

    :param ends: names of the two collections
    :param lenient: whether files that cannot be verified are copied anyway
    """

    options: Options
    ends: tuple[str, str]
    lenient: bool = False

    def of(self, work: Work) -> bool:
        """Return whether a file must be verified; it must be if the task's owner stated its checksum."""
        return self.options.verify_checksum or work.details.stated_checksum is not None

    def check(self, work: Work, verified: bool) -> None:
        """Check that a file was verified, if the task requires it.

        :raises Unverifiable: when it was not verified, and unverified copies are not allowed
        """
        if self.of(work) and not verified and not (self.lenient and work.details.stated_checksum is None):
            source, sink = self.ends
            raise Unverifiable(
                f"cannot verify {work.source}: {source} and {sink} have no checksum algorithm in common",
                "submit it with verify_checksum false, or have an admin set copy_unverified = true in [transfers] "
                "of the workers' TOML",
            )

    def marked(self, result: WorkResult, verified: bool, now: float) -> WorkResult:
        """Return the result, marked as unverified if the file had to be verified but was not."""
        if verified or not self.of(result.work):
            return result
        source, sink = self.ends
        details = f"{result.work.source}: {source} and {sink} have no checksum algorithm in common"
        event = Event(now, "UNVERIFIED", False, "copied, but not verified", details)
        counts = {**result.counts, "files_unverified": 1}
        return result._replace(checksum=None, counts=counts, events=(*result.events, event))
