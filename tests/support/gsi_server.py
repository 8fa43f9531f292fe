"""A GridFTP server with GSI logins that may insist on a mode of data channel authentication, and so on a proxy.

It implements only the control connection. It accepts every proxy that is delegated to it, and records proxies and
logins. It lists one file, but sends no data.
"""

import asyncio
import ssl
import subprocess
from base64 import b64decode, b64encode
from types import TracebackType
from typing import Any, Self

from tests.support.gsi import Authority, Identity, write_proxy_key
from tests.support.waiting import PATIENCE

__all__ = ["GreedyServer"]

REPLIES = {
    "USER": "331 Password required.",
    "PASS": "230 Welcome.",
    "TYPE": "200 Type set.",
    "MODE": "200 Mode set.",
    "SIZE": "213 10",
    "MDTM": "213 20260101000000",
    "MLST": "250-Listing\r\n Type=file;Size=10;Modify=20260101000000; /file\r\n250 End.",
    "FEAT": "211-Features\r\n DCAU\r\n ERET\r\n PARALLEL\r\n MLST Type*;Size*;Modify*;\r\n211 End.",
    "PASV": "425 No data connection.",
    "EPSV": "425 No data connection.",
}


class GreedyServer:
    """A server that listens on loopback within its `async with` block, with TLS 1.3.

    :param modes: modes of the command DCAU that it accepts
    """

    def __init__(self, grid: Authority, host: Identity, modes: str = "A") -> None:
        self._host = host
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.minimum_version = ssl.TLSVersion.TLSv1_3
        self._tls.verify_mode = ssl.CERT_REQUIRED
        self._tls.verify_flags |= ssl.VerifyFlags.VERIFY_ALLOW_PROXY_CERTS
        self._tls.load_verify_locations(capath=grid.trusted)
        self._tls.load_cert_chain(host.certificate, host.key)
        self._modes = modes
        self.logins: list[str] = []
        """Subjects of the certificates with which clients have logged in."""
        self.delegated: list[bytes] = []
        """Proxies (DER) that it has received."""
        self.commands: list[str] = []
        self.port = 0

    def url(self, path: str = "/file") -> str:
        return f"gsiftp://localhost:{self.port}{path}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await _Session(self, self._tls, reader, writer).run()
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def reply(self, command: str) -> str:
        self.commands.append(command)
        verb, _, rest = command.partition(" ")
        if verb == "DCAU":
            return "200 DCAU set." if rest[:1] in self._modes else "534 Data channel authentication is required."
        return REPLIES.get(verb, "500 Not here.")

    def request(self) -> bytes:
        """Return a certificate request (DER) for a proxy."""
        key = self._host.certificate.with_name("greedy.key")
        write_proxy_key(key)
        words = ["req", "-new", "-key", key, "-subj", "/CN=x", "-outform", "DER"]
        return subprocess.run(["openssl", *map(str, words)], check=True, capture_output=True, timeout=PATIENCE).stdout


class _Session:
    def __init__(
        self, server: GreedyServer, tls: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def run(self) -> None:
        self._send("220 Greedy GridFTP server ready.")
        await self._line()
        self._send("334 Using authentication type; ADAT must follow.")
        await self._shake_hands()
        await self._take_proxy()
        self._send("235 Security data exchange complete.")
        while line := await self._line():
            self._incoming.write(b64decode(line.partition(" ")[2]))
            command = self._tls.read(64 * 1024).decode().strip()
            self._tls.write(f"{self._server.reply(command)}\r\n".encode())
            self._send(f"632 {b64encode(self._outgoing.read()).decode()}")

    async def _shake_hands(self) -> None:
        while True:
            await self._token()
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._answer()
                continue
            break
        shown: dict[str, Any] = self._tls.getpeercert() or {}
        self._server.logins.append("".join(f"/{value}" for part in shown["subject"] for _, value in part))
        self._tls.write(b"\0")  # as Globus does with TLS 1.3
        self._answer()

    async def _take_proxy(self) -> None:
        """Read the delegation flag of the client; if it is D, request a proxy."""
        if await self._read() == b"D":
            self._tls.write(self._server.request())
            self._answer()
            self._server.delegated.append(await self._read())

    async def _read(self) -> bytes:
        while True:
            try:
                return self._tls.read(64 * 1024)
            except ssl.SSLWantReadError:
                await self._token()

    async def _token(self) -> None:
        self._incoming.write(b64decode((await self._line()).partition(" ")[2]))

    def _answer(self) -> None:
        self._send(f"335 ADAT={b64encode(self._outgoing.read()).decode()}")

    async def _line(self) -> str:
        """Read a line. :raises IncompleteReadError: the client has disconnected"""
        return (await self._reader.readuntil(b"\n")).decode().strip()

    def _send(self, line: str) -> None:
        self._writer.write(f"{line}\r\n".encode())
