"""The GSI exchange with a server as bytes in, bytes out: handshake, delegation flag, then sealed messages.

GSI tokens are TLS records. How they travel (base64 on a control connection, plain on a data connection) is left to
`security`. The Globus peculiarities: with TLS 1.3 the server sends one byte after the handshake, which must be read
first; and the client ends the exchange with one byte, `0`, or delegates: it sends `D`, the server answers with a
request for a certificate, and the client ends with what it signed.
"""

import binascii
import ssl
from base64 import b64decode, b64encode
from collections.abc import Callable

from coalloc.engine.gridftp.gsi.failures import no_handshake
from coalloc.errors import ConnectionLost, ServerSays

__all__ = ["ContextProtection", "SecurityContext"]

DELEGATION, NO_DELEGATION = b"D", b"0"
LONGEST_MESSAGE = 64 * 1024
PROTECTED = (b"631", b"632", b"633")  # RFC 2228: signed, signed and encrypted, encrypted

CheckPeer = Callable[[ssl.SSLObject], None]
Sign = Callable[[bytes], bytes]


class SecurityContext:
    """One end, the client's, of a GSI security context.

    :param host: told to the server, which may have a certificate for each of its names
    :param where: host:port, for messages
    :param check_peer: judges the server's certificate, which OpenSSL has verified, by raising
    :param sign: makes of the server's request for a proxy (DER) the signed one; None: nothing is delegated
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

    def step(self, token: bytes = b"") -> bytes:
        """What the server sent -> what to send; nothing to send means: more is to come, or `complete` before.

        :raises PermissionRefused: when either end does not trust the other
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
            self._tls.write(DELEGATION if self._sign else NO_DELEGATION)
            self._flagged = True
            self.complete = self._sign is None
        elif self._sign and not self.complete:
            self._tls.write(self._sign(self._tls.read(LONGEST_MESSAGE)))
            self.complete = True

    def wrap(self, message: bytes) -> bytes:
        """Encrypt a message."""
        self._tls.write(message)
        return self._outgoing.read()

    def unwrap(self, token: bytes) -> bytes:
        """Decrypt what the server sent.

        :raises ssl.SSLError: when it is not what the server sent
        """
        self._incoming.write(token)
        pieces = []
        try:
            while piece := self._tls.read(LONGEST_MESSAGE):
                pieces.append(piece)
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)


class ContextProtection:
    """A control connection under a security context: `coalloc.engine.gridftp.control.Protection`.

    An unprotected reply is believed only if it is a refusal: whoever could put that in could as well cut the line.
    """

    def __init__(self, context: SecurityContext) -> None:
        self._context = context

    def seal(self, command: bytes) -> bytes:
        return b"ENC " + b64encode(self._context.wrap(command)) + b"\r\n"

    def open(self, line: bytes) -> bytes:
        if line[:3] not in PROTECTED:
            if line[:1] in (b"4", b"5"):
                return line + b"\r\n"
            raise ServerSays("the server answered without protection", "report this: the connection may be attacked")
        try:
            plain = self._context.unwrap(b64decode(line[4:].strip(), validate=True))
        except (ssl.SSLError, binascii.Error):
            raise ConnectionLost("a reply was damaged on its way", "try again") from None
        return plain if plain.endswith(b"\n") else plain + b"\r\n"
