"""Conversion of failed logins by certificate, as reported by servers and TLS, to coget's errors."""

import re
import ssl

from coalloc.engine.gridftp.gsi.credential import NEW_PROXY
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import LoginRefused, NotThatProtocol, PermissionRefused, SourceError, Unsupported

MODULE = re.compile(r"\bglobus_\w+: ")

__all__ = [
    "DelegationNeeded",
    "delegation_needed",
    "no_handshake",
    "no_security",
    "not_admitted",
    "not_authenticated",
    "wrong_host",
]


class DelegationNeeded(Unsupported):
    """A server that makes data connections only with a proxy of the user, who has not allowed that."""


def no_security(reply: Reply, where: str) -> SourceError:
    """Return the error for a server that refused AUTH GSSAPI."""
    return NotThatProtocol(
        f"{where} offers no login by certificate: {_words(reply)}", "if the file is public, try ftp://"
    )


def not_authenticated(reply: Reply, where: str) -> SourceError:
    """Return the error for a server that ended the exchange."""
    message = f"{where} refused your certificate: {_words(reply)}"
    if "expired" in message:
        return LoginRefused(message, NEW_PROXY)
    if "trusted CA" in message:
        return LoginRefused(message, "ask the server's admin to trust your CA, or use a certificate of another CA")
    return LoginRefused(message, f"read the server's message, or {NEW_PROXY}")


def not_admitted(reply: Reply, where: str) -> SourceError:
    """Return the error for a valid certificate that the server maps to no account."""
    return LoginRefused(
        f"{where} has no account for you: {_words(reply)}", "ask the server's admin to map your certificate's subject"
    )


def wrong_host(host: str, where: str, names: tuple[str, ...]) -> SourceError:
    """Return the error for a server whose certificate is trusted, but belongs to another host."""
    return PermissionRefused(
        f"{where} presented a certificate for {', '.join(names) or 'no host'}, not for {host}",
        "if it is the same server, use that name in the URL",
    )


def delegation_needed(host: str, where: str, reply: Reply) -> SourceError:
    """Return the error for a server that refused all ways of securing data connections that need no proxy."""
    return DelegationNeeded(
        f"{where}: no agreement on data connections: the server says {reply.code} {reply.text}; "
        "it may insist on a proxy with which it can act as you",
        f"use another replica, or if you trust {host} to read and write files as you for an hour, "
        f"use --delegate {host} (for a broker's workers, an admin sets delegate of the endpoint)",
    )


def no_handshake(error: ssl.SSLError, where: str) -> SourceError:
    """Return the error for a failed TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return PermissionRefused(
            f"{where}: the server's certificate is not trusted: {error.verify_message}",
            "check that X509_CERT_DIR has the CA of this server; if its certificate has expired, tell its admin",
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if re.search(r"alert.*(certificate|unknown ca)", reason):
        return LoginRefused(f"{where} refused your certificate: {reason}", "ask the server's admin for access")
    return Unsupported(f"{where}: TLS handshake failed: {reason}", "use --engine globus-url-copy, or another replica")


def _words(reply: Reply) -> str:
    """Return the cause of a Globus error, which is the last part of the reply, without the name of its module."""
    text = " ".join(line for line in reply.lines if line not in ("End.", "End"))
    *_, cause = MODULE.split(" ".join(text.split()))
    return f"the server says {reply.code} {reply._replace(lines=(cause,)).text}"
