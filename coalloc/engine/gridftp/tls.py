"""FTP over TLS (RFC 4217): the login, and data connections that resume the session of the control connection.

    AUTH TLS              -> 234                  then TLS; over ftps:// (implicit), TLS comes first
    USER, PASS            -> 230
    PBSZ 0, PROT P        -> 200                  from here on data are encrypted

The certificate is checked as for https. A user and password are sent over TLS only. Many servers accept a data
connection only if it resumes a session, which shows that it comes from the same client.
"""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from functools import cache
from typing import cast

from coalloc.engine.gridftp.address import Address
from coalloc.engine.gridftp.control import ControlConnection
from coalloc.engine.gridftp.refusals import login_refusal
from coalloc.engine.gridftp.replies import Reply
from coalloc.engine.gridftp.tls_failures import tls_failure
from coalloc.engine.web_authorities import AuthorityPlaces, WebTrust, authority_places, trust_in
from coalloc.errors import Stalled, Unsupported

__all__ = ["TLSData", "TLSSecurity", "tls_trust"]

PIECE = 256 * 1024
"""Maximum bytes read at once."""
RECORD = 17 * 1024
"""Maximum bytes of a TLS record."""


def tls_trust() -> WebTrust:
    """Return the context of all connections, with the authorities that the HTTP engine trusts."""
    return _trust(authority_places())


@cache  # reading all authorities takes 50 ms; and only connections with the same context can resume a session
def _trust(places: AuthorityPlaces) -> WebTrust:
    trust = trust_in(places)
    trust.context.set_alpn_protocols(["ftp"])  # so that no server of another protocol with the same certificate answers
    return trust


class TLSSecurity:
    """The TLS of one session: `coalloc.engine.gridftp.login.Security`.

    :param seconds: time limit for the handshake of a data connection
    """

    protects_data = True
    outlived = False

    def __init__(self, address: Address, seconds: float) -> None:
        self._address = address
        self._seconds = seconds
        self._where = f"{address.host}:{address.port}"
        self._trust = tls_trust()
        self._control: ControlConnection | None = None
        self.login: Sequence[str] = (f"USER {address.user}", f"PASS {address.password}", "PBSZ 0", "PROT P")

    @property
    def from_the_start(self) -> ssl.SSLContext | None:
        """The context of a control connection that begins with TLS; None if it begins in plain text."""
        return self._trust.context if self._address.tls == "implicit" else None

    async def authenticate(self, control: ControlConnection, _pipelined: bool) -> None:
        """Begin TLS. Nothing is sent ahead of it, and a server that refuses it gets no login."""
        self._control = control
        if self.from_the_start:
            self._check(control.tls)
            return
        await control.greeting()
        reply = await control.ask("AUTH TLS")
        if reply.code != 234:
            raise Unsupported(
                f"{self._where} refuses TLS: it says {reply.code} {reply.text}",
                "use another replica; ftp:// would send all unencrypted",
            )
        await control.start_tls(self._trust.context, self._address.host)
        self._check(control.tls)

    def _check(self, tls: ssl.SSLObject | None) -> None:
        """Check a server that only a grid's authorities vouch for."""
        if self._trust.folder and tls:
            from coalloc.engine.gridftp.gsi.web_servers import check_web_server  # few users have grid authorities

            check_web_server(self._trust, tls, self._where)

    async def admitted(self, _control: ControlConnection) -> None:
        """Do nothing: the handshake has ended."""

    async def check_login(self, control: ControlConnection, replies: Sequence[Reply]) -> None:
        """Check the replies to `login`."""
        user, password, _, private = replies
        if error := login_refusal(user, password, control.where, self._address.user):
            raise error
        if not 200 <= private.code < 300:
            said = f"{private.code} {private.text}"
            raise Unsupported(f"{self._where} does not encrypt data: it says {said}", "use another replica")

    async def secure(self, data: socket.socket) -> "TLSData":
        """Return the encrypted stream of a data connection."""
        assert self._control is not None
        control = self._control.tls
        stream = TLSData(data, self._trust.context, self._address.host, control.session if control else None)
        try:
            async with asyncio.timeout(self._seconds):
                await stream.shake_hands()
        except TimeoutError:
            raise Stalled(f"{self._where}: no answer on a data connection", "try again later") from None
        except OSError as error:
            raise tls_failure(error, f"{self._where}, data connection") from None
        if not stream.tls.session_reused:  # a resumed session is the one of the control connection
            self._check(stream.tls)
        return stream


class TLSData:
    """A TLS stream over a non-blocking socket, which the caller closes.

    :param session: session to resume, None for a new one
    """

    overhead = RECORD
    """Maximum bytes that may have been read from the socket, but not decrypted."""

    def __init__(
        self, sock: socket.socket, context: ssl.SSLContext, host: str, session: ssl.SSLSession | None = None
    ) -> None:
        self._sock = sock
        self._received, self._unsent = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._received, self._unsent, server_hostname=host, session=session)

    async def shake_hands(self) -> None:
        """Do the handshake. :raises OSError: when it fails, or the connection is lost"""
        loop, over = asyncio.get_running_loop(), False
        while not over:
            try:
                self.tls.do_handshake()
                over = True
            except ssl.SSLWantReadError:
                pass
            if self._unsent.pending:
                await loop.sock_sendall(self._sock, self._unsent.read())
            if not over:
                self._arrived(await loop.sock_recv(self._sock, PIECE))

    def fileno(self) -> int:
        """Return the socket's number, to wait for data."""
        return self._sock.fileno()

    def recv_into(self, buffer: memoryview, most: int) -> int:
        """Decrypt at most `most` bytes into the buffer; return their number, 0 at the end of the data.

        No whole record stays undecrypted, unless `most` is reached, as the socket does not report it again.

        :raises BlockingIOError: when nothing has arrived
        :raises OSError: when the connection is lost, or its data are not authentic
        """
        count = self._decrypt(buffer, most)
        while count is not None and count < most:
            space = most - count - RECORD  # a part of a record may have arrived before
            if count and space < RECORD:
                break
            try:
                arrived = self._sock.recv(min(max(space, RECORD), PIECE))
            except BlockingIOError:
                break
            self._arrived(arrived)
            more = self._decrypt(buffer[count:], most - count)
            if more is None:
                return count
            count += more
        if count == 0 and most:
            raise BlockingIOError
        return count or 0

    def _arrived(self, data: bytes) -> None:
        if data:
            self._received.write(data)
        else:
            self._received.write_eof()

    def _decrypt(self, buffer: memoryview, most: int) -> int | None:
        """Decrypt what has arrived; return the number of bytes, None at the end of the data."""
        count = 0
        while count < most:
            try:
                read = cast(int, self.tls.read(most - count, cast(bytearray, buffer[count:most])))
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                read = 0
            if not read:
                return count or None
            count += read
        return count
