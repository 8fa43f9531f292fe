"""Conversion of servers' negative replies to coget's errors."""

import re

from coalloc.engine.gridftp.address import ANONYMOUS
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import (
    AlreadyThere,
    ConnectionLost,
    IsDirectory,
    LoginRefused,
    NoSpace,
    NoSuchFile,
    NotDirectory,
    NotEmpty,
    PermissionRefused,
    ServerBusy,
    ServerSays,
    SourceError,
    Unsupported,
)

__all__ = ["login_refusal", "refusal"]

MISSING = r"no such|not found|not exist|PATH_NOT_FOUND"
OF_NO_USE = r"levels of symbolic links|not a (plain|regular) file"
DISK = (
    (r"no space|disk full|quota|insufficient (disk|storage)", NoSpace, "make room there, or ask for more"),
    (r"name too long", Unsupported, "choose a shorter name"),
    (r"not empty", NotEmpty, "delete its content first"),
    (r"is a directory|IS_A_DIRECTORY", IsDirectory, "give the path of a file in it"),
    (r"not a directory|NOT_A_DIRECTORY", NotDirectory, "check the path"),
    (r"(file|already) exists|PATH_EXISTS", AlreadyThere, "choose another name, or delete the existing one"),
)
"""File system errors by pattern, in the words of the C library and of Globus servers: error, remedy."""
FULL = r"too many(?! levels)|\bbusy\b|maximum|\bmax \d|limit exceeded|overload"
"""Pattern for replies of servers with too many clients, which use 421, but also 425, 450 or 530."""
FORBIDDEN = r"permission|denied|not (allowed|permitted)|forbidden|not authori[sz]ed|read-only|GSSAPI"


def refusal(reply: Reply, thing: str) -> SourceError:
    """Return the error for a negative reply.

    :param thing: the object of the request: a URL, or host:port while logging in
    """
    message = f"{thing}: the server says {reply.code} {reply.text}"
    if (400 <= reply.code < 500 or reply.code == 530) and _matches(FULL, reply):
        return ServerBusy(message)
    if reply.code in (530, 532):
        return _login_refused(reply, message)
    if reply.code == 421:
        return ConnectionLost(message, "try again later")
    for words, error, remedy in DISK:
        if _matches(words, reply):
            return error(message, remedy)
    if _matches(FORBIDDEN, reply):
        return PermissionRefused(message, "ask the admin for access, or log in: ftp://USER:PASSWORD@HOST/...")
    missing = _matches(MISSING, reply)
    if missing or reply.code in (550, 553) or _matches(OF_NO_USE, reply):
        remedy = "check the path: after the host, it begins at the server's root"
        return NoSuchFile(message, remedy, certain=missing)
    if reply.code in (501, 502, 504, 534, 536):
        return Unsupported(message, "use --engine globus-url-copy, or another replica")
    return ServerSays(message, "read the server's message, or use another replica")


def login_refusal(user: Reply, password: Reply, where: str, name: str) -> SourceError | None:
    """Return the error for the replies to USER and PASS; None if they mean that the user is logged in.

    :param where: host and port
    :param name: name of the user
    """
    # A server that needs no password answers the pipelined PASS with 202 or an error.
    if user.code == 230 or (user.positive and password.code in (202, 230)):
        return None
    reply = password if user.positive else user
    error = refusal(reply, f"login to {where} as {name}")
    if isinstance(error, LoginRefused) and name != ANONYMOUS and not _wants_certificate(reply):
        error.remedy = "check the user and the password in the URL"
    return error


def _matches(pattern: str, reply: Reply) -> bool:
    """Return whether a reply matches the pattern, which is compiled at the first refusal."""
    return re.search(pattern, reply.text, re.IGNORECASE) is not None


def _wants_certificate(reply: Reply) -> bool:
    return _matches("GSSAPI|secur", reply)


def _login_refused(reply: Reply, message: str) -> LoginRefused:
    if _wants_certificate(reply):
        return LoginRefused(message, "use gsiftp:// with a valid proxy certificate")
    return LoginRefused(message, "give user and password: ftp://USER:PASSWORD@HOST/...")
