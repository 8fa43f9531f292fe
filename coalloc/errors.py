"""The error tree of coalloc. Every error names the thing, what went wrong, and what to do.

    CoallocError
    ├── UsageError             2  an option, URL or Metalink that makes no sense
    │   └── TooMuch               it may make sense, and is more than is taken at once
    ├── NothingToFetchFrom     3  no source could be used
    ├── VerificationError      4  a checksum does not match, or replicas disagree
    ├── TransferFailed         5  every source was tried and left
    ├── SinkError              6  the local disk: full, unwritable, failing
    │   └── DiskFull              no room on it, or in what the user may have of it
    ├── NotAllowed             7  every source refused us
    ├── TargetExists           7  a file has the target's name, and is not to be replaced
    ├── TargetInUse            8  another coget writes this target
    └── SourceError               one replica, one attempt; never ends a transfer by itself
        ├── UnknownHost           permanent
        ├── Unreachable           refused, no route, connect timed out
        ├── ConnectionLost        closed or reset while in use
        ├── Stalled               open, but no bytes
        ├── ServerBusy            it takes no more work now; says when to come back, or not
        ├── NoFreeConnection      other transfers of this machine have all that it may have to this server
        │   └── NoFreeProcess     this process runs as many copies of a program as it may
        ├── NoSuchFile            permanent
        │   ├── IsDirectory       where a file is needed
        │   └── NotDirectory      where a directory is needed
        ├── AlreadyThere          permanent: a file or directory of that name exists
        ├── NotEmpty              permanent: a directory that has something in it
        ├── NoSpace               the server's disk, or the user's quota there, is full
        ├── PermissionRefused     permanent: login, certificate, mode bits
        │   └── AddressRefused        nothing connects there on the word of whoever named it
        ├── NotThatProtocol       permanent: something else answers at that port
        ├── Unsupported           permanent: the server lacks what we need (ranges, a command)
        ├── ReplicaChanged        permanent: size or validator differ from what was agreed
        └── ServerSays            the server's own words, when nothing above fits
            └── LimitExceeded     permanent: it sends more than a transfer has use for

The number is the exit status of `coget`. Foreign exceptions (OSError, httpx, ssl, fsspec) become one of
these at the border where they arise.
"""

from collections.abc import Awaitable, Callable, Sequence

from coalloc.plain import one_line

__all__ = [
    "AddressRefused",
    "AlreadyThere",
    "CoallocError",
    "ConnectionLost",
    "DiskFull",
    "IsDirectory",
    "LimitExceeded",
    "NoFreeConnection",
    "NoFreeProcess",
    "NoSpace",
    "NoSuchFile",
    "NotAllowed",
    "NotDirectory",
    "NotEmpty",
    "NotThatProtocol",
    "NothingToFetchFrom",
    "PermissionRefused",
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
    "UnknownHost",
    "Unreachable",
    "Unsupported",
    "UsageError",
    "VerificationError",
]

BUSY_SECONDS = 2.0
"""After how long a busy server is asked again that does not say when."""


class CoallocError(Exception):
    """An error a person can act on.

    :param message: what went wrong, naming the thing (a URL, a path, an option)
    :param remedy: what to do about it, as an imperative sentence
    :param reasons: what the message sums up, a line each

    Servers and files have a say in all of these: they are escaped here, and each is one line.
    """

    status = 1
    code = "error"

    def __init__(self, message: str, remedy: str = "", reasons: Sequence[str] = ()) -> None:
        self.message = "\n  ".join(map(one_line, (message, *reasons)))
        super().__init__(self.message)
        self.remedy = one_line(remedy)
        self.report: object | None = None
        """The `coalloc.model.TransferReport` of what was known when a download ended with this error."""
        self.done: Sequence[object] | None = None
        """Those of the files that were fetched before, when several were to be."""


class UsageError(CoallocError):
    """An option, a URL or a Metalink that makes no sense."""

    status = 2
    code = "usage"


class TooMuch(UsageError):
    """It may make sense, and is more than is taken at once."""


class NothingToFetchFrom(CoallocError):
    """No source could be used from the start."""

    status = 3
    code = "nothing_to_fetch_from"


class VerificationError(CoallocError):
    """The bytes are not what they should be, or the replicas are not of one file."""

    status = 4
    code = "verification_failed"


class TransferFailed(CoallocError):
    """Every source failed while bytes were still missing; what is verified is kept."""

    status = 5
    code = "transfer_failed"


class SinkError(CoallocError):
    """The local disk: full, unwritable, or failing."""

    status = 6
    code = "local_disk"


class DiskFull(SinkError):
    """There is no room on the local disk, or in what this user may have of it."""


class NotAllowed(CoallocError):
    """Every source refused us."""

    status = 7
    code = "not_allowed"


class TargetExists(CoallocError):
    """A file that is not to be replaced has the target's name."""

    status = 7
    code = "target_exists"


class TargetInUse(CoallocError):
    """Another process is fetching to this target."""

    status = 8
    code = "target_in_use"


class SourceError(CoallocError):
    """What went wrong at one replica in one attempt.

    `permanent` says that trying again is of no use, `retry_after` after how many seconds it is, where that is known;
    `at_source` that, of two servers between which a file is copied, it is the one that sends.
    """

    status = 5
    code = "source_failed"
    permanent = False
    retry_after: float | None = None
    at_source = False


class UnknownHost(SourceError):
    """The host name does not resolve."""

    status = 3
    code = "unknown_host"
    permanent = True


class Unreachable(SourceError):
    """No connection: refused, no route, or no answer in time."""

    status = 3
    code = "unreachable"


class ConnectionLost(SourceError):
    """The connection was closed or reset while it was in use."""

    code = "connection_lost"


class Stalled(SourceError):
    """The connection is open, but nothing arrives."""

    code = "stalled"


class ServerBusy(SourceError):
    """The server takes no more requests or sessions now.

    :param retry_after: seconds after which it wants to be asked again; None if it does not say
    """

    status = 3
    code = "server_busy"

    def __init__(self, message: str, remedy: str = "try again later", retry_after: float | None = None) -> None:
        super().__init__(message, remedy)
        self.retry_after = BUSY_SECONDS if retry_after is None else retry_after


class NoFreeConnection(SourceError):
    """Other transfers of this machine have all the connections that it may have to one server.

    :param server: HOST:PORT
    :param most: how many that are
    :param until_free: waits for one, which is kept for whoever raised this until that is opened again
    """

    code = "no_free_connection"

    def __init__(self, server: str, most: int, until_free: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            f"waiting for a free connection to {server}: transfers of this machine have all {most}",
            "wait for them, or set COGET_CONNECTIONS to allow more",
        )
        self.until_free = until_free


class NoFreeProcess(NoFreeConnection):
    """This process runs as many copies of a program as it may.

    :param program: its name
    """

    code = "no_free_process"

    def __init__(self, program: str, most: int, until_free: Callable[[], Awaitable[None]]) -> None:
        SourceError.__init__(
            self, f"waiting for one of {most} processes of {program}", "wait for them, or use fewer replicas"
        )
        self.until_free = until_free


class NoSuchFile(SourceError):
    """The server has no such file, or it is not a plain file.

    `certain`: the server says that nothing is there, and not only that it will not do what was asked.
    """

    status = 3
    code = "no_such_file"
    permanent = True
    certain = True


class IsDirectory(NoSuchFile):
    """There is a directory where a file is needed."""

    code = "is_directory"


class NotDirectory(NoSuchFile):
    """There is a file where a directory is needed, as the last part of a path or before."""

    code = "not_directory"


class AlreadyThere(SourceError):
    """There is something of that name already."""

    code = "already_there"
    permanent = True


class NotEmpty(SourceError):
    """The directory has something in it."""

    code = "not_empty"
    permanent = True


class NoSpace(SourceError):
    """The server's disk is full, or what the user may have of it."""

    code = "no_space"


class PermissionRefused(SourceError):
    """Login, certificate or file permission was refused."""

    status = 7
    code = "permission_refused"
    permanent = True


class AddressRefused(PermissionRefused):
    """Nothing connects to the address on the word of whoever named it."""

    code = "address_refused"


class NotThatProtocol(SourceError):
    """Something answers at that port, but it does not speak the URL's protocol."""

    status = 3
    code = "not_that_protocol"
    permanent = True


class Unsupported(SourceError):
    """The server, or this installation, lacks what is needed."""

    status = 3
    code = "unsupported"
    permanent = True


class ReplicaChanged(SourceError):
    """Size or validator are not what was agreed for this file."""

    status = 4
    code = "replica_changed"
    permanent = True


class ServerSays(SourceError):
    """The server's own words, when nothing more exact is known."""

    code = "server_says"


class LimitExceeded(ServerSays):
    """A server sends more, or in smaller parts, than any transfer has use for."""

    status = 3
    code = "limit_exceeded"
    permanent = True
