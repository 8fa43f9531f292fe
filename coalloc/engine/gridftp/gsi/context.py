"""The GSI exchange with a server, without I/O: handshake, delegation flag, then encrypted messages.

GSI tokens are TLS records. `security` transports them (base64 on a control connection, plain on a data connection).
Globus has two peculiarities. With TLS 1.3, the server sends one byte after the handshake, which must be read first. And
the client ends the exchange with the byte `0`, or delegates: it sends `D`, the server answers with a certificate
request, and the client sends the signed certificate.
"""

import binascii
import re
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable

from coalloc.engine.gridftp.gsi.failures import no_handshake
from coalloc.engine.gridftp.replies import Reply
from coalloc.errors import ConnectionLost, ServerSays

__all__ = ["ContextExchange", "ContextProtection", "SecurityContext", "read_token"]

DELEGATION, NO_DELEGATION = b"D", b"0"
LONGEST_MESSAGE = 64 * 1024
TOKEN = re.compile(r"ADAT=(\S*)")
CLOSING = b"421 "
LONGEST_SHOWN = 200
PROTECTED = (b"631", b"632", b"633")  # RFC 2228: signed, signed and encrypted, encrypted

CheckPeer = Callable[[ssl.SSLObject], None]
Sign = Callable[[bytes], bytes]


class SecurityContext:
    """The client's side of a GSI security context.

    :param host: name sent to the server, which may have a certificate for each of its names
    :param where: host:port, for messages
    :param check_peer: function that raises if it refuses the server's certificate, which OpenSSL has verified
    :param sign: function that signs the server's request for a proxy (DER); None to delegate nothing
    """

    def __init__(
        self, context: ssl.SSLContext, host: str, where: str, check_peer: CheckPeer, sign: Sign | None = None
    ) -> None:
        self.complete = False
        self._where = where
        self._check_peer = check_peer
        self._sign = sign
        self._flagged = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._shaken = False
        self._owed = False

    def step(self, token: bytes = b"") -> bytes:
        """Process the server's token and return the answer; empty if there is none, as for an incomplete token.

        :raises PermissionRefused: when one side does not trust the other
        """
        self._incoming.write(token)
        try:
            self._advance()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            raise no_handshake(error, self._where) from None
        return self._outgoing.read()

    def _advance(self) -> None:
        if not self._shaken:
            self._tls.do_handshake()
            self._shaken = True
            self._check_peer(self._tls)
            if self._outgoing.pending:
                return
        if not self._flagged:
            if self._tls.version() == "TLSv1.3":
                self._tls.read(1)
            self._flag()
        elif self._sign and not self.complete:
            self._tls.write(self._sign(self._tls.read(LONGEST_MESSAGE)))
            self.complete = True

    def _flag(self) -> None:
        self._tls.write(DELEGATION if self._sign else NO_DELEGATION)
        self._flagged = True
        self.complete = self._sign is None

    def hurry(self) -> bytes:
        """Return bytes that can be sent right after a step, without the server's answer; empty if there are none.

        `take_owed` then processes the byte that the server sends first.
        """
        if self._flagged or self._sign or not self._shaken:
            return b""
        self._flag()
        self._owed = True
        return self._outgoing.read()

    def take_owed(self, token: bytes) -> None:
        """Process the answer to the step before `hurry`; ignore other tokens.

        :raises ssl.SSLError: when the token was damaged or forged
        """
        if self._owed:
            self._owed = False
            self._incoming.write(token)
            self._tls.read(1)

    def wrap(self, message: bytes) -> bytes:
        """Encrypt a message."""
        self._tls.write(message)
        return self._outgoing.read()

    def unwrap(self, token: bytes) -> bytes:
        """Decrypt the server's message.

        :raises ssl.SSLError: when the message was damaged or forged
        """
        self._incoming.write(token)
        pieces = []
        try:
            while piece := self._tls.read(LONGEST_MESSAGE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)


class ContextExchange:
    """Protection of a control connection during the exchange: none; it processes the answers that `hurry` skipped."""

    def __init__(self, context: SecurityContext) -> None:
        self._context = context

    def seal(self, command: bytes) -> bytes:
        return command

    def open(self, line: bytes) -> bytes:
        if token := read_token(line.decode(errors="replace")):
            try:
                self._context.take_owed(token)
            except ssl.SSLError:
                raise ConnectionLost("a reply was damaged in transit", "try again") from None
        return line + b"\r\n"


class ContextProtection:
    """Protection of a control connection under a security context: `coalloc.engine.gridftp.control.Protection`.

    An unprotected reply is accepted only if it ends the session (421), which an attacker could also do by cutting the
    connection. Any other forged reply could, for instance, claim that the file does not exist.
    """

    def __init__(self, context: SecurityContext) -> None:
        self._context = context

    def seal(self, command: bytes) -> bytes:
        return b"ENC " + b64encode(self._context.wrap(command)) + b"\r\n"

    def open(self, line: bytes) -> bytes:
        if line[:3] not in PROTECTED or line[3:4] not in (b" ", b"-"):
            if line[:4] == CLOSING:
                return line + b"\r\n"
            text = Reply(0, (line[:LONGEST_SHOWN].decode(errors="replace"),)).text
            raise ServerSays(
                f"the server answered without protection: {text}", "report this: the connection may be under attack"
            )
        try:
            plain = self._context.unwrap(b64decode(line[4:].strip(), validate=True))
        except (ssl.SSLError, binascii.Error):
            raise ConnectionLost("a reply was damaged in transit", "try again") from None
        return plain if plain.endswith(b"\n") else plain + b"\r\n"


def read_token(reply: str) -> bytes:
    """Return the token in a reply to ADAT; empty if it has none."""
    found = TOKEN.search(reply)
    try:
        return b64decode(found[1], validate=True) if found else b""
    except binascii.Error:
        return b""
