"""Login to a GridFTP server with a proxy certificate: the GSI exchange over its connections.

    AUTH GSSAPI           -> 334
    ADAT <ClientHello>    -> 335 ADAT=<token>      and so on until the context is complete -> 235
    ENC <USER ...>        -> 632 <331 ...>         from here on all is sealed

With TLS 1.3, the client needs only the server's first token: it then sends the remaining exchange and the encrypted
commands together.

Data connections have no exchange (DCAU N) unless the server requires one: then both ends show their own certificates
(DCAU S). If the server refuses that, too, and the user allowed its host, coget delegates a proxy, which the server
shows on data connections (DCAU A). `context` does the exchange, `credential` finds the files, `trust` checks the
server's certificate for revocation and signing policy, and `failures` converts refusals to errors.
"""

import asyncio
import logging
import math
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from coalloc.engine.gridftp.address import ANONYMOUS, Address
from coalloc.engine.gridftp.control import ControlConnection, PendingReply
from coalloc.engine.gridftp.gsi.context import ContextExchange, ContextProtection, SecurityContext, read_token
from coalloc.engine.gridftp.gsi.credential import (
    Credential,
    check_dates,
    find_authorities,
    find_credential,
    tls_context,
)
from coalloc.engine.gridftp.gsi.delegation import last_moment, own_subject, sign_proxy
from coalloc.engine.gridftp.gsi.failures import (
    DelegationNeeded,
    delegation_needed,
    no_security,
    not_admitted,
    not_authenticated,
    wrong_host,
)
from coalloc.engine.gridftp.gsi.identity import certificate_names, matches
from coalloc.engine.gridftp.gsi.trust import judge, verified_chain
from coalloc.engine.gridftp.replies import Reply
from coalloc.engine.gridftp.security import DataMode, LoginAgain
from coalloc.errors import ConnectionLost, PermissionRefused, ServerSays, SourceError, Stalled, Unsupported

__all__ = ["DelegationNeeded", "GridSecurity"]

log = logging.getLogger(__name__)

ANYTHING_BUT_DELEGATION: Sequence[DataMode] = ("N", "S")
MAPPED_USER = ":globus-mapping:"  # the account to which the server maps the certificate
DATA_SECONDS = 30.0  # for the exchange on a data connection
SPARE = 0.1
"""Fraction of a delegated proxy's lifetime; the proxy is renewed when less than this is left."""


class GridSecurity:
    """Authentication of one session: `coalloc.engine.gridftp.login.Security`.

    :param modes: modes of data channel authentication to offer, the best first: N for none, S with the user's
        certificate, A with a delegated one; by default N and S, and A if `delegates`
    :param proxy: the file of the proxy to show; None for the user's usual one
    :param delegates: whether a proxy may be delegated to this host
    """

    from_the_start = None

    def __init__(
        self,
        address: Address,
        modes: Sequence[DataMode] | None = None,
        proxy: Path | None = None,
        delegates: bool = False,
    ) -> None:
        self._address = address
        self._proxy = proxy
        self._where = f"{address.host}:{address.port}"
        usual: Sequence[DataMode] = [*ANYTHING_BUT_DELEGATION, "A"] if delegates else ANYTHING_BUT_DELEGATION
        self._modes = list(modes or usual)
        self._delegates = "A" in self._modes
        self._delegated = b""
        self._renewed_at = math.inf
        self._answers: list[PendingReply] = []
        self._hurried = False
        self._credential: Credential
        self._authorities: Path
        self._tls: ssl.SSLContext

    @property
    def protects_data(self) -> bool:
        return self._modes[0] != "N"

    @property
    def outlived(self) -> bool:
        """Return whether the delegated proxy is about to expire, so that data connections need a new one."""
        return time.time() >= self._renewed_at

    @property
    def login(self) -> Sequence[str]:
        user = MAPPED_USER if self._address.user == ANONYMOUS else self._address.user
        return [f"USER {user}", "PASS dummy", self._data_mode()]

    def _data_mode(self) -> str:
        mode = self._modes[0]
        return f"DCAU S {own_subject(self._credential)}" if mode == "S" else f"DCAU {mode}"

    async def authenticate(self, control: ControlConnection, pipelined: bool) -> None:
        """Agree on a security context, up to the client's last message; `admitted` awaits the server's last one.

        :raises PermissionRefused: when there is no usable credential, or one side does not trust the other
        :raises NotThatProtocol: when the server does not support GSI
        """
        self._credential, self._authorities = find_credential(self._proxy), find_authorities()
        self._tls = tls_context(self._credential, self._authorities)
        self._hurried = False
        try:
            control.protection = ContextProtection(await self._exchange(control, pipelined))
        except SourceError:
            self._check_dates()
            raise

    def _check_dates(self) -> None:
        check_dates(self._credential, self._authorities)  # its messages are better than the server's

    async def _exchange(self, control: ControlConnection, pipelined: bool) -> SecurityContext:
        sign = self._sign if self._modes[0] == "A" else None
        context = SecurityContext(self._tls, self._address.host, self._where, self._check_host, sign)
        control.protection = ContextExchange(context)
        method, pending = control.submit("AUTH GSSAPI"), _submit_token(control, context.step())
        if (reply := await control.reply(method)).code != 334:
            raise no_security(reply, self._where)
        self._answers = [pending]
        while not context.complete:
            reply = await control.reply(self._answers[-1])
            answer = context.step(_token(reply)) if reply.code == 335 else b""
            if not answer:
                raise not_authenticated(reply, self._where)
            self._answers = [_submit_token(control, answer)]
            if pipelined and (rest := context.hurry()):
                self._hurried = True
                self._answers.append(_submit_token(control, rest))
        return context

    async def admitted(self, control: ControlConnection) -> None:
        """Wait for the server's last messages.

        :raises PermissionRefused: when the server does not trust the user's certificate
        :raises ServerSays: when the server refuses, perhaps only because commands were sent ahead
        """
        replies = [await control.reply(answer) for answer in self._answers]
        if [reply.code for reply in replies] == [335] * (len(replies) - 1) + [235]:
            return
        self._check_dates()
        refused = next((reply for reply in replies if reply.code != 335), replies[-1])
        if self._hurried:
            raise ServerSays(f"{self._where}: the server says {refused.code} {refused.text}", "ask step by step")
        raise not_authenticated(refused, self._where)

    def _check_host(self, tls: ssl.SSLObject) -> None:
        names = certificate_names(tls.getpeercert() or {})
        if not matches(self._address.host, names):
            raise wrong_host(self._address.host, self._where, names)
        for doubt in judge(verified_chain(tls), self._authorities, self._where):
            warn_once(str(doubt))

    def _check_delegated(self, tls: ssl.SSLObject) -> None:
        if tls.getpeercert(binary_form=True) != self._delegated:
            raise PermissionRefused(
                f"{self._where}: the peer of the data connection presented another certificate than the proxy "
                "delegated to the server",
                "discard the data; tell the server's admin",
            )

    def _sign(self, request: bytes) -> bytes:
        self._delegated = sign_proxy(request, self._credential)
        now, end = time.time(), last_moment(self._delegated)
        self._renewed_at = end.timestamp() - SPARE * (end.timestamp() - now)
        warn_once(f"{self._where} insists on a proxy: a limited one, valid for an hour at most, was delegated to it")
        log.info("%s has a limited proxy until %s", self._where, end)
        return self._delegated

    async def check_login(self, control: ControlConnection, replies: Sequence[Reply]) -> None:
        """Check the replies to `login`; offer further modes for data connections if the first is refused.

        :raises PermissionRefused: when the server has no account for the user
        :raises DelegationNeeded: when only delegation is left, and the user has not allowed it
        :raises LoginAgain: when only delegation is left, for which a new session has to be authenticated
        """
        user, password, data = replies
        if not (user.positive and password.positive):
            raise not_admitted(password if user.positive else user, self._where)
        while not data.positive:
            self._modes.pop(0)
            if not self._modes and not self._delegates:
                raise delegation_needed(self._address.host, self._where, data)
            if not self._modes:
                raise Unsupported(
                    f"{self._where}: no agreement on data connections: the server says {data.code} {data.text}",
                    "use --engine globus-url-copy, or another replica",
                )
            if self._modes[0] == "A":
                raise LoginAgain(f"{self._where} requires a delegated proxy", "connect again")
            data = await control.ask(self._data_mode())

    async def secure(self, data: socket.socket) -> socket.socket:
        """Authenticate both ends of a data connection; data then go over it unchanged."""
        if not self.protects_data:
            return data
        if self.outlived:
            raise ConnectionLost(f"{self._where}: the delegated proxy is about to expire", "connect again")
        try:
            async with asyncio.timeout(DATA_SECONDS):
                await self._exchange_data(data)
        except TimeoutError:
            raise Stalled(f"{self._where}: no answer on a data connection", "try again later") from None
        except OSError as error:
            raise ConnectionLost(f"{self._where}: a data connection was lost: {error}", "try again") from None
        return data

    async def _exchange_data(self, data: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        tls, check = self._tls, self._check_host
        if self._modes[0] == "A":
            tls, check = tls_context(self._credential, self._authorities), self._check_delegated
            tls.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
        context = SecurityContext(tls, self._address.host, self._where, check)
        await loop.sock_sendall(data, context.step())
        while not context.complete:
            token = await loop.sock_recv(data, 64 * 1024)
            if not token:
                raise ConnectionLost(f"{self._where} ended a data connection during the login", "try again")
            await loop.sock_sendall(data, context.step(token))


@lru_cache(maxsize=1024)
def warn_once(text: str) -> None:
    """Warn the user; the same text is shown once per process."""
    log.warning("%s", text)


def _submit_token(control: ControlConnection, token: bytes) -> PendingReply:
    return control.submit(f"ADAT {b64encode(token).decode()}")


def _token(reply: Reply) -> bytes:
    token = read_token(" ".join(reply.lines))
    if not token:
        raise ServerSays("the server's reply to ADAT contains no token", "use another replica")
    return token
