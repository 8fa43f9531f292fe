"""The error tree of coalloc. Every error names the thing, the failure, and the remedy.

    CoallocError
    ├── UsageError             2  an invalid option, URL or Metalink
    │   ├── UnsafeName            of a file, from a server or a document
    │   └── TooMuch               the request may be valid, but exceeds a limit
    ├── NothingToFetchFrom     3  no source could be used
    │   └── NoAnswer              a source or the broker did not answer; transient
    ├── VerificationError      4  a checksum does not match, or replicas disagree
    ├── TransferFailed         5  every source was tried and failed; transient
    │   └── TransferRefused           every source refuses for a reason that lasts
    ├── SinkError              6  the local disk: full, unwritable, failing
    │   └── DiskFull              no space on it, or in the user's quota
    ├── NotAllowed             7  every source refused access
    ├── TargetExists           7  an existing file is not to be replaced
    ├── TargetInUse            8  another coget writes this target; transient
    ├── FilesFailed                some of many files failed; the status of the most serious failure
    ├── DeadlineRefused        9  a deadline cannot be kept with the wanted probability
    │   └── DeadlineMissed        the file is complete, but late
    ├── RateRefused            9  a rate for a reader cannot be kept with the wanted probability
    │   └── RateMissed            the file was read, but too often slower
    └── SourceError               one replica, one attempt; never ends a transfer alone
        ├── UnknownHost           permanent
        ├── Unreachable           refused, no route, connect timed out
        ├── ConnectionLost        closed or reset while in use
        ├── Stalled               open, but no bytes
        ├── ServerBusy            accepts no more requests now; may state when to retry
        ├── NoFreeConnection      other transfers of this machine have all permitted connections
        │   └── NoFreeProcess     this process runs as many copies of a program as permitted
        ├── NoSuchFile            permanent
        │   ├── IsDirectory       where a file is needed
        │   └── NotDirectory      where a directory is needed
        ├── AlreadyThere          permanent: a file or directory of that name exists
        ├── NotEmpty              permanent: a directory that is not empty
        ├── NoSpace               the server's disk, or the user's quota there, is full
        ├── PermissionRefused     permanent: login, certificate, mode bits
        │   ├── LoginRefused          the login or the certificate, for all files of the server
        │   └── AddressRefused        an address to which a server or document may not lead
        ├── NotThatProtocol       permanent: another protocol answers at that port
        │   └── NoGreeting        accepts the connection but sends nothing; not permanent
        ├── Unsupported           permanent: the server lacks a needed feature (ranges, a command)
        ├── ReplicaChanged        permanent: size or validator differ from the agreed ones
        └── ServerSays            the server's own message, when nothing above fits
            └── LimitExceeded     permanent: it sends more than a transfer needs

The number is the exit status of `coget`. After a transient error, and after an error of one source that is not
permanent, the same command may succeed later. Foreign exceptions (OSError, httpx, ssl, fsspec) are converted
to one of these where they arise.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from coalloc.safe_text import one_line

__all__ = [
    "AddressRefused",
    "AlreadyThere",
    "CoallocError",
    "ConnectionLost",
    "DeadlineMissed",
    "DeadlineRefused",
    "DiskFull",
    "FilesFailed",
    "IsDirectory",
    "LimitExceeded",
    "LoginRefused",
    "NoAnswer",
    "NoFreeConnection",
    "NoFreeProcess",
    "NoGreeting",
    "NoSpace",
    "NoSuchFile",
    "NotAllowed",
    "NotDirectory",
    "NotEmpty",
    "NotThatProtocol",
    "NothingToFetchFrom",
    "PermissionRefused",
    "RateMissed",
    "RateRefused",
    "ReplicaChanged",
    "ServerBusy",
    "ServerSays",
    "SinkError",
    "SourceError",
    "Stalled",
    "TargetExists",
    "TargetInUse",
    "TooMuch",
    "TransferFailed",
    "TransferRefused",
    "UnknownHost",
    "Unreachable",
    "UnsafeName",
    "Unsupported",
    "UsageError",
    "VerificationError",
]

SHOWN_FAILURES = 100
"""Number of failures that the error of many files names."""
MOST_SERIOUS = (6, 4, 7, 3, 2, 9, 5, 8, 1)
"""Statuses of one file's failure, the most serious first: wrong bytes and a full disk before a file that is missing."""
BUSY_SECONDS = 2.0
"""Seconds until a busy server is asked again, if it does not state a time."""


class CoallocError(Exception):
    """An error that the user can act on.

    :param message: the failure, naming the thing (a URL, a path, an option)
    :param remedy: the remedy, as an imperative sentence
    :param reasons: the individual failures that the message sums up, a line each

    All of these may contain text from servers and files; this class escapes each, and makes it one line.
    """

    status = 1
    code = "error"
    _passes = False
    causes: "tuple[SourceError, ...]" = ()
    """The sources' errors that this one sums up, if no source could be used; empty if it is a source's own error."""

    def __init__(self, message: str, remedy: str = "", reasons: Sequence[str] = ()) -> None:
        self.message = "\n  ".join(map(one_line, (message, *reasons)))
        super().__init__(self.message)
        self.remedy = one_line(remedy)

    def __reduce__(self) -> tuple[object, ...]:
        """Return the parts for pickling: subclasses are made of other arguments, and text is escaped already."""
        return _unpickled, (type(self), self.args), self.__dict__

    @property
    def transient(self) -> bool:
        """Return whether the same attempt may succeed later, without any change by the user."""
        return self._passes

    @property
    def summary(self) -> str:
        """The message with its reasons in one line."""
        return self.message.replace("\n  ", " ")


def _unpickled(kind: type[CoallocError], args: tuple[str, ...]) -> CoallocError:
    return kind.__new__(kind, *args)


class UsageError(CoallocError):
    """An option, a URL or a Metalink that is invalid."""

    status = 2
    code = "usage"


class UnsafeName(UsageError):
    """A file name from a server or a document that leads elsewhere, or that no file should have."""


class TooMuch(UsageError):
    """A request that may be valid, but exceeds a limit."""


class NothingToFetchFrom(CoallocError):
    """A failure of all sources at the start of a transfer."""

    status = 3
    code = "nothing_to_fetch_from"


class NoAnswer(NothingToFetchFrom):
    """A failure of all sources at the start, of which one may pass, or a broker that does not answer."""

    code = "no_answer"
    _passes = True


class VerificationError(CoallocError):
    """Wrong bytes, or replicas that are different files."""

    status = 4
    code = "verification_failed"


class TransferFailed(CoallocError):
    """A failure of all sources while bytes were still missing; the verified bytes are kept."""

    status = 5
    code = "transfer_failed"
    _passes = True


class TransferRefused(TransferFailed):
    """A failure of all sources while bytes were still missing, for reasons that last."""

    code = "transfer_refused"
    _passes = False


class SinkError(CoallocError):
    """A failure of the local disk: full, unwritable, or failing."""

    status = 6
    code = "local_disk"


class DiskFull(SinkError):
    """A full local disk, or an exhausted quota of the user."""


class NotAllowed(CoallocError):
    """A refusal by every source."""

    status = 7
    code = "not_allowed"


class TargetExists(CoallocError):
    """An existing file with the target's name that must not be replaced."""

    status = 7
    code = "target_exists"


class TargetInUse(CoallocError):
    """A target that another process is fetching to."""

    status = 8
    code = "target_in_use"
    _passes = True


class FilesFailed(CoallocError):
    """The failure of some of many files. The status is that of the most serious failure.

    :param failed: the error of each failed file, by name; the first ones are shown
    :param files: number of all files
    :param unbegun: number of files that were not begun
    """

    status = 5
    code = "files_failed"

    def __init__(self, failed: Mapping[str, CoallocError], files: int, unbegun: int = 0) -> None:
        shown = list(failed.items())[:SHOWN_FAILURES]
        reasons = [f"{name}: {error.summary}" for name, error in shown]
        if more := len(failed) - len(shown):
            reasons.append(f"and {more:,} more, which --json names")
        if unbegun:
            reasons.append(f"{unbegun:,} files were not begun")
        worst = min(failed.values(), key=_seriousness)
        super().__init__(f"{len(failed):,} of {files:,} files failed:", worst.remedy, reasons)
        self.status = worst.status
        self._passes = all(error.transient for error in failed.values())


def _seriousness(error: CoallocError) -> tuple[bool, int]:
    """Return a value that is lower for more serious failures."""
    return error.transient, (*MOST_SERIOUS, error.status).index(error.status)


class DeadlineRefused(CoallocError):
    """A deadline that will probably not be kept."""

    status = 9
    code = "deadline"


class DeadlineMissed(DeadlineRefused):
    """A file that is complete and verified, but later than promised."""


class RateRefused(CoallocError):
    """A rate for a reader, or for files, that will probably not be kept."""

    status = 9
    code = "rate"


class RateMissed(RateRefused):
    """Files that came completely, but in too many seconds slower than promised."""


class SourceError(CoallocError):
    """A failure at one replica in one attempt.

    `permanent`: a retry is useless. `retry_after`: seconds to wait before a retry, if known. `at_source`,
    `at_destination`: in a copy between two servers, the sending or the receiving one failed, if known.
    """

    status = 5
    code = "source_failed"
    permanent = False
    retry_after: float | None = None

    def __init__(self, message: str, remedy: str = "", reasons: Sequence[str] = ()) -> None:
        super().__init__(message, remedy, reasons)
        self.at_source = self.at_destination = False

    @property
    def transient(self) -> bool:
        return not self.permanent

    def blame_source(self) -> None:
        """Record that the source failed: in a copy between two servers, the sending one."""
        self.at_source = True

    def blame_destination(self) -> None:
        """Record that the receiving server of a copy failed."""
        self.at_destination = True


class UnknownHost(SourceError):
    """A host name that does not resolve."""

    status = 3
    code = "unknown_host"
    permanent = True


class Unreachable(SourceError):
    """A failed connection attempt: refused, no route, or no answer in time."""

    status = 3
    code = "unreachable"


class ConnectionLost(SourceError):
    """A connection that was closed or reset while it was in use."""

    code = "connection_lost"


class Stalled(SourceError):
    """An open connection on which nothing arrives."""

    code = "stalled"


class ServerBusy(SourceError):
    """A server that accepts no more requests or sessions now.

    :param retry_after: seconds until the server wants the next request; None if it does not state a time
    """

    status = 3
    code = "server_busy"

    def __init__(self, message: str, remedy: str = "try again later", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after = BUSY_SECONDS if retry_after is None else retry_after


class NoFreeConnection(SourceError):
    """A limit reached: other transfers of this machine have all permitted connections to one server.

    :param server: HOST:PORT
    :param most: the number of permitted connections
    :param until_free: function that waits for a connection, and reserves it for the source that raised this error
    """

    code = "no_free_connection"

    def __init__(self, server: str, most: int, until_free: Callable[[], Awaitable[object]]) -> None:
        super().__init__(
            f"waiting for a free connection to {server}: transfers of this machine use all {most}",
            "wait for them, or set COGET_CONNECTIONS to allow more",
        )
        self.until_free = until_free


class NoFreeProcess(NoFreeConnection):
    """A limit reached: this process runs as many copies of a program as permitted.

    :param program: its name
    """

    code = "no_free_process"

    def __init__(self, program: str, most: int, until_free: Callable[[], Awaitable[object]]) -> None:
        SourceError.__init__(
            self, f"waiting for one of {most} processes of {program}", "wait for them, or use fewer replicas"
        )
        self.until_free = until_free


class NoSuchFile(SourceError):
    """A file that the server does not have, or that is not a plain file.

    :param certain: whether the server says that the file does not exist; False if it only refuses the request
    """

    status = 3
    code = "no_such_file"
    permanent = True

    def __init__(self, message: str, remedy: str = "", *, certain: bool = True) -> None:
        super().__init__(message, remedy)
        self.certain = certain


class IsDirectory(NoSuchFile):
    """A directory in place of a file."""

    code = "is_directory"


class NotDirectory(NoSuchFile):
    """A file in place of a directory, at the end of a path or within it."""

    code = "not_directory"


class AlreadyThere(SourceError):
    """An existing file or directory with the requested name."""

    code = "already_there"
    permanent = True


class NotEmpty(SourceError):
    """A directory that is not empty."""

    code = "not_empty"
    permanent = True


class NoSpace(SourceError):
    """A full disk of the server, or an exhausted quota of the user there."""

    code = "no_space"


class PermissionRefused(SourceError):
    """A refusal of the login, the certificate or access to the file."""

    status = 7
    code = "permission_refused"
    permanent = True


class LoginRefused(PermissionRefused):
    """A refusal of the login or the certificate, and so of all files of the server."""


class AddressRefused(PermissionRefused):
    """An address to which the server or document that named it may not lead."""

    code = "address_refused"


class NotThatProtocol(SourceError):
    """A server of another protocol at the URL's port."""

    status = 3
    code = "not_that_protocol"
    permanent = True


class NoGreeting(NotThatProtocol):
    """Silence after a connection was accepted: the server is overloaded, or of another protocol."""

    permanent = False


class Unsupported(SourceError):
    """A missing feature of the server, or of this installation."""

    status = 3
    code = "unsupported"
    permanent = True


class ReplicaChanged(SourceError):
    """A size or validator that differs from the agreed one of this file."""

    status = 4
    code = "replica_changed"
    permanent = True


class ServerSays(SourceError):
    """An error message of the server without a more specific meaning."""

    code = "server_says"


class LimitExceeded(ServerSays):
    """More data, or smaller parts, from a server than any transfer needs."""

    status = 3
    code = "limit_exceeded"
    permanent = True
